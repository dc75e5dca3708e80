#include "tenon/memory/host/extent_store.h"

#include <algorithm>
#include <exception>

#include "tenon/base/align.h"
#include "tenon/base/check.h"
#include "tenon/base/error.h"
#include "tenon/base/reserve.h"
#include "tenon/memory/front/stream_counters.h"

namespace tenon::host {

ExtentStore::~ExtentStore() {
  for (const auto& extent : extents_)
    ignore_refusal([&] { backend_.free_segment(extent->segment); });
}

Block* ExtentStore::take(std::uint64_t size_bytes) {
  const std::lock_guard lock(lock_);
  return take_locked(size_bytes);
}

Block* ExtentStore::take_locked(std::uint64_t size_bytes) {
  Block* block = heap_.place(size_bytes, size_bytes % kSpanAlignment == 0 ? kSpanAlignment : 1);
  if (block == nullptr) return nullptr;
  ++operations_;
  auto* extent = static_cast<Extent*>(block->owner);
  if (extent->whole != nullptr) {
    extent->whole = nullptr;
    --whole_extents_;
  }
  use(block);
  return block;
}

ExtentStore::Pages ExtentStore::pages_around(const Block* block) {
  const std::uint64_t begin = block->offset - static_cast<const Extent*>(block->owner)->offset;
  return {begin / kExtentUnit, align_up(begin + block->size, kExtentUnit) / kExtentUnit};
}

ExtentStore::Pages ExtentStore::pages_inside(const Block* block) {
  const std::uint64_t begin = block->offset - static_cast<const Extent*>(block->owner)->offset;
  return {align_up(begin, kExtentUnit) / kExtentUnit, (begin + block->size) / kExtentUnit};
}

// A block is handed out, so its pages will be resident.
void ExtentStore::use(const Block* block) {
  used_bytes_ += block->size;
  peak_used_bytes_ = std::max(peak_used_bytes_, used_bytes_);
  may_give_back_ = std::min(may_give_back_ + block->size / kGiveBack, kGiveBackAtOnce);
  if (!fits_closely_) return;
  const std::uint64_t before = resident_bytes_;
  const Pages pages = pages_around(block);
  for (std::uint64_t page = pages.first; page < pages.end; ++page)
    set_resident(*static_cast<Extent*>(block->owner), page, true);
  if (resident_bytes_ != before) fit_closely();
}

// Note [close fit].
void ExtentStore::fit_closely() {
  const std::uint64_t enough =
      peak_used_bytes_ + std::max(peak_used_bytes_ / kSlack, kLeastSlack);
  if (resident_bytes_ <= enough || may_give_back_ < kExtentUnit) return;
  const LongLock::Stay stay(lock_);
  for (const Block* block : free_blocks_from_the_end()) {
    auto* extent = static_cast<Extent*>(block->owner);
    const Pages pages = pages_inside(block);
    for (std::uint64_t page = pages.end; page-- > pages.first;) {
      if (resident_bytes_ <= enough || may_give_back_ < kExtentUnit) return;
      if (!extent->resident[page]) continue;
      backend_.purge(static_cast<char*>(extent->segment.base) + page * kExtentUnit, kExtentUnit);
      may_give_back_ -= kExtentUnit;
      set_resident(*extent, page, false);
    }
  }
}

// Those that may hold a huge page. None where there is no memory for the list: it can wait.
std::vector<const Block*> ExtentStore::free_blocks_from_the_end() const {
  std::vector<const Block*> free;
  try {
    heap_.for_each_from(kExtentUnit, [&](const Block* block) {
      free.push_back(block);
      return true;
    });
  } catch (const std::bad_alloc&) {
    return {};
  }
  std::sort(free.begin(), free.end(),
            [](const Block* a, const Block* b) { return a->offset > b->offset; });
  return free;
}

void ExtentStore::set_resident(Extent& extent, std::uint64_t page, bool now) {
  if (extent.resident[page] == now) return;
  extent.resident[page] = now;
  resident_bytes_ = now ? resident_bytes_ + kExtentUnit : resident_bytes_ - kExtentUnit;
}

Block* ExtentStore::grow_and_take(std::uint64_t size_bytes, std::uint64_t extent_bytes) {
  const std::uint64_t wanted = align_up(std::max(size_bytes, extent_bytes), kExtentUnit);
  const std::lock_guard growth(growth_);
  if (Block* block = take(size_bytes)) return block;  // another thread has grown meanwhile
  bool within_limit = true;
  if (limit_bytes_ != 0)
    accounts_.change([&](const AllocatorStats& stats) {
      const auto reserved = static_cast<std::uint64_t>(stats.reserved_bytes[0].current);
      within_limit = reserved + wanted <= limit_bytes_;
    });
  if (!within_limit) return nullptr;
  auto extent = std::make_unique<Extent>();
  const auto segment = backend_.allocate_segment(wanted);
  if (!segment) return nullptr;
  extent->segment = *segment;
  const std::lock_guard lock(lock_);
  try {
    add_extent(std::move(extent));
  } catch (const std::bad_alloc&) {
    const LongLock::Stay stay(lock_);
    ignore_refusal([&] { backend_.free_segment(*segment); });
    throw;
  }
  return take_locked(size_bytes);
}

// Throws std::bad_alloc with nothing changed; then the segment is still the caller's.
void ExtentStore::add_extent(std::unique_ptr<Extent> extent) {
  const std::uint64_t size_bytes = extent->segment.size_bytes;
  const std::uint64_t whole_pages = align_up(size_bytes, kExtentUnit);
  extent->stream = stream_;
  extent->offset = end_offset_;
  extent->origin = reinterpret_cast<std::uintptr_t>(extent->segment.base) - end_offset_;
  extent->resident = std::vector<bool>(whole_pages / kExtentUnit);
  reserve_more(extents_);
  extent->whole = heap_.add_extent(end_offset_, size_bytes);
  extent->whole->owner = extent.get();
  extents_.push_back(std::move(extent));
  end_offset_ += whole_pages;
  ++whole_extents_;
  accounts_.change([&](AllocatorStats& stats) {
    count_reserved(stats, StatPool::kLarge, static_cast<std::int64_t>(size_bytes));
    count_segment(stats, StatPool::kLarge, 1);
  });
}

void ExtentStore::release(Block* block, Released& released) noexcept {
  const std::lock_guard lock(lock_);
  auto* extent = static_cast<Extent*>(block->owner);
  used_bytes_ -= block->size;
  block->requested = ++operations_;  // when it became free; a merger keeps the latest
  block = heap_.release(block);
  if (block->prev == nullptr && block->next == nullptr) {
    extent->whole = block;
    ++whole_extents_;
  }
  constexpr std::uint64_t kLookEvery = 256;
  if (whole_extents_ == 0 || operations_ < next_look_) return;
  next_look_ = operations_ + kLookEvery;
  if (operations_ >= kDecayOperations)
    give_back_old_extents(operations_ - kDecayOperations, released);
}

// Those that have been wholly free since that operation.
void ExtentStore::give_back_old_extents(std::uint64_t until, Released& released) {
  for (std::size_t i = extents_.size(); i-- > 0;) {
    Block* whole = extents_[i]->whole;
    if (whole == nullptr || whole->requested > until) continue;
    try {
      give_back(i, released);
    } catch (const std::exception&) {
      whole->requested = operations_;  // nothing may fail for that; it decays again
    }
  }
}

void ExtentStore::decay(Released& released) {
  const std::lock_guard lock(lock_);
  give_back_old_extents(seen_until_, released);
  purge_freed(purged_until_, seen_until_);
  purged_until_ = seen_until_;
  seen_until_ = operations_;
}

void ExtentStore::purge() {
  const std::lock_guard lock(lock_);
  purge_freed(purged_until_, operations_);
  peak_used_bytes_ = used_bytes_;
  purged_until_ = seen_until_ = operations_;
}

// A free block's stamp says when it, or the last of those that joined in it, became free.
void ExtentStore::purge_freed(std::uint64_t after, std::uint64_t until) {
  if (after >= until) return;
  const LongLock::Stay stay(lock_);
  heap_.for_each_free([&](const Block* block) {
    if (block->size < kExtentUnit || block->requested <= after || block->requested > until) return;
    backend_.purge(address_of(block), block->size);
    const Pages pages = pages_inside(block);
    for (std::uint64_t page = pages.first; page < pages.end; ++page)
      set_resident(*static_cast<Extent*>(block->owner), page, false);
  });
}

void ExtentStore::release_free_extents(Released& released) {
  const std::lock_guard lock(lock_);
  for (std::size_t i = extents_.size(); i-- > 0;)
    if (extents_[i]->whole != nullptr) give_back(i, released);
}

// Requires: the extent is wholly free. Throws DeviceError, with nothing changed.
void ExtentStore::give_back(std::size_t index, Released& released) {
  Extent& extent = *extents_[index];
  {
    const LongLock::Stay stay(lock_);
    backend_.free_segment(extent.segment);
  }
  for (std::uint64_t page = 0; page < extent.resident.size(); ++page)
    set_resident(extent, page, false);
  heap_.remove_extent(extent.whole);
  released.add(std::move(extents_[index]));
  extents_.erase(extents_.begin() + static_cast<std::ptrdiff_t>(index));
  --whole_extents_;
  accounts_.change([&](AllocatorStats& stats) {
    count_reserved(stats, StatPool::kLarge,
                   -static_cast<std::int64_t>(extent.segment.size_bytes));
    count_segment(stats, StatPool::kLarge, -1);
  });
}

std::uint64_t ExtentStore::largest_free_bytes() const {
  const std::lock_guard lock(lock_);
  return heap_.largest_free();
}

void ExtentStore::check_invariants() const {
  const std::lock_guard lock(lock_);
  heap_.check_invariants();
  std::uint64_t whole = 0;
  for (const auto& extent : extents_) {
    if (extent->whole == nullptr) continue;
    ++whole;
    TENON_CHECK(extent->whole->state == Block::State::kFree &&
                    extent->whole->offset == extent->offset &&
                    extent->whole->size == extent->segment.size_bytes,
                "the extent at {} is not wholly free", extent->offset);
  }
  TENON_CHECK(whole == whole_extents_, "{} free extents, {} counted", whole, whole_extents_);
}

}  // namespace tenon::host
