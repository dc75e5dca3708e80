#include "tenon/memory/host/region_store.h"

#include <algorithm>
#include <exception>

#include "tenon/base/align.h"
#include "tenon/base/check.h"
#include "tenon/base/error.h"
#include "tenon/base/reserve.h"
#include "tenon/memory/front/stream_counters.h"

namespace tenon::host {

RegionStore::~RegionStore() {
  for (const auto& region : regions_)
    ignore_refusal([&] { backend_.free_segment(region->segment); });
}

Block* RegionStore::take(std::uint64_t size_bytes) {
  const std::lock_guard lock(lock_);
  return take_locked(size_bytes);
}

Block* RegionStore::take_locked(std::uint64_t size_bytes) {
  Block* block = heap_.place(size_bytes, size_bytes % kSpanAlignment == 0 ? kSpanAlignment : 1);
  if (block == nullptr) return nullptr;
  ++operations_;
  auto* region = static_cast<Region*>(block->owner);
  if (region->whole != nullptr) {
    region->whole = nullptr;
    --whole_regions_;
  }
  use(block);
  return block;
}

RegionStore::Pages RegionStore::pages_around(const Block* block) {
  const std::uint64_t begin = block->offset - static_cast<const Region*>(block->owner)->offset;
  return {begin / kRegionUnit, align_up(begin + block->size, kRegionUnit) / kRegionUnit};
}

RegionStore::Pages RegionStore::pages_inside(const Block* block) {
  const std::uint64_t begin = block->offset - static_cast<const Region*>(block->owner)->offset;
  return {align_up(begin, kRegionUnit) / kRegionUnit, (begin + block->size) / kRegionUnit};
}

// A block is handed out, so its pages will be resident.
void RegionStore::use(const Block* block) {
  used_bytes_ += block->size;
  peak_used_bytes_ = std::max(peak_used_bytes_, used_bytes_);
  may_give_back_ = std::min(may_give_back_ + block->size / kGiveBack, kGiveBackAtOnce);
  if (!fits_closely_) return;
  const std::uint64_t before = resident_bytes_;
  const Pages pages = pages_around(block);
  for (std::uint64_t page = pages.first; page < pages.end; ++page)
    set_resident(*static_cast<Region*>(block->owner), page, true);
  if (resident_bytes_ != before) fit_closely();
}

// Note [close fit].
void RegionStore::fit_closely() {
  const std::uint64_t enough =
      peak_used_bytes_ + std::max(peak_used_bytes_ / kSlack, kLeastSlack);
  if (resident_bytes_ <= enough || may_give_back_ < kRegionUnit) return;
  const LongLock::Stay stay(lock_);
  for (const Block* block : free_blocks_from_the_end()) {
    auto* region = static_cast<Region*>(block->owner);
    const Pages pages = pages_inside(block);
    for (std::uint64_t page = pages.end; page-- > pages.first;) {
      if (resident_bytes_ <= enough || may_give_back_ < kRegionUnit) return;
      if (!region->resident[page]) continue;
      backend_.purge(static_cast<char*>(region->segment.base) + page * kRegionUnit, kRegionUnit);
      may_give_back_ -= kRegionUnit;
      set_resident(*region, page, false);
    }
  }
}

// Those that may hold a huge page. None where there is no memory for the list: it can wait.
std::vector<const Block*> RegionStore::free_blocks_from_the_end() const {
  std::vector<const Block*> free;
  try {
    heap_.for_each_from(kRegionUnit, [&](const Block* block) {
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

void RegionStore::set_resident(Region& region, std::uint64_t page, bool now) {
  if (region.resident[page] == now) return;
  region.resident[page] = now;
  resident_bytes_ = now ? resident_bytes_ + kRegionUnit : resident_bytes_ - kRegionUnit;
}

Block* RegionStore::grow_and_take(std::uint64_t size_bytes, std::uint64_t region_bytes) {
  const std::uint64_t wanted = align_up(std::max(size_bytes, region_bytes), kRegionUnit);
  const std::lock_guard growth(growth_);
  if (Block* block = take(size_bytes)) return block;  // another thread has grown meanwhile
  bool within_limit = true;
  if (limit_bytes_ != 0)
    accounts_.change([&](const AllocatorStats& stats) {
      const auto reserved = static_cast<std::uint64_t>(stats.reserved_bytes[0].current);
      within_limit = reserved + wanted <= limit_bytes_;
    });
  if (!within_limit) return nullptr;
  auto region = std::make_unique<Region>();
  const auto segment = backend_.allocate_segment(wanted);
  if (!segment) return nullptr;
  region->segment = *segment;
  const std::lock_guard lock(lock_);
  try {
    add_region(std::move(region));
  } catch (const std::bad_alloc&) {
    const LongLock::Stay stay(lock_);
    ignore_refusal([&] { backend_.free_segment(*segment); });
    throw;
  }
  return take_locked(size_bytes);
}

// Throws std::bad_alloc with nothing changed; then the segment is still the caller's.
void RegionStore::add_region(std::unique_ptr<Region> region) {
  const std::uint64_t size_bytes = region->segment.size_bytes;
  const std::uint64_t whole_pages = align_up(size_bytes, kRegionUnit);
  region->stream = stream_;
  region->offset = end_offset_;
  region->origin = reinterpret_cast<std::uintptr_t>(region->segment.base) - end_offset_;
  region->resident = std::vector<bool>(whole_pages / kRegionUnit);
  reserve_more(regions_);
  region->whole = heap_.add_extent(end_offset_, size_bytes);
  region->whole->owner = region.get();
  regions_.push_back(std::move(region));
  end_offset_ += whole_pages;
  ++whole_regions_;
  accounts_.change([&](AllocatorStats& stats) {
    count_reserved(stats, StatPool::kLarge, static_cast<std::int64_t>(size_bytes));
    count_segment(stats, StatPool::kLarge, 1);
  });
}

void RegionStore::release(Block* block, Released& released) noexcept {
  const std::lock_guard lock(lock_);
  auto* region = static_cast<Region*>(block->owner);
  used_bytes_ -= block->size;
  block->requested = ++operations_;  // when it became free; a merger keeps the latest
  block = heap_.release(block);
  if (block->prev == nullptr && block->next == nullptr) {
    region->whole = block;
    ++whole_regions_;
  }
  constexpr std::uint64_t kLookEvery = 256;
  if (whole_regions_ == 0 || operations_ < next_look_) return;
  next_look_ = operations_ + kLookEvery;
  if (operations_ >= kDecayOperations)
    give_back_old_regions(operations_ - kDecayOperations, released);
}

// Those that have been wholly free since that operation.
void RegionStore::give_back_old_regions(std::uint64_t until, Released& released) {
  for (std::size_t i = regions_.size(); i-- > 0;) {
    Block* whole = regions_[i]->whole;
    if (whole == nullptr || whole->requested > until) continue;
    try {
      give_back(i, released);
    } catch (const std::exception&) {
      whole->requested = operations_;  // nothing may fail for that; it decays again
    }
  }
}

void RegionStore::decay(Released& released) {
  const std::lock_guard lock(lock_);
  give_back_old_regions(seen_until_, released);
  purge_freed(purged_until_, seen_until_);
  purged_until_ = seen_until_;
  seen_until_ = operations_;
}

void RegionStore::purge() {
  const std::lock_guard lock(lock_);
  purge_freed(purged_until_, operations_);
  peak_used_bytes_ = used_bytes_;
  purged_until_ = seen_until_ = operations_;
}

// A free block's stamp says when it, or the last of those that joined in it, became free.
void RegionStore::purge_freed(std::uint64_t after, std::uint64_t until) {
  if (after >= until) return;
  const LongLock::Stay stay(lock_);
  heap_.for_each_free([&](const Block* block) {
    if (block->size < kRegionUnit || block->requested <= after || block->requested > until) return;
    backend_.purge(address_of(block), block->size);
    const Pages pages = pages_inside(block);
    for (std::uint64_t page = pages.first; page < pages.end; ++page)
      set_resident(*static_cast<Region*>(block->owner), page, false);
  });
}

void RegionStore::release_free_regions(Released& released) {
  const std::lock_guard lock(lock_);
  for (std::size_t i = regions_.size(); i-- > 0;)
    if (regions_[i]->whole != nullptr) give_back(i, released);
}

// Requires: the region is wholly free. Throws DeviceError, with nothing changed.
void RegionStore::give_back(std::size_t index, Released& released) {
  Region& region = *regions_[index];
  {
    const LongLock::Stay stay(lock_);
    backend_.free_segment(region.segment);
  }
  for (std::uint64_t page = 0; page < region.resident.size(); ++page)
    set_resident(region, page, false);
  heap_.remove_extent(region.whole);
  released.add(std::move(regions_[index]));
  regions_.erase(regions_.begin() + static_cast<std::ptrdiff_t>(index));
  --whole_regions_;
  accounts_.change([&](AllocatorStats& stats) {
    count_reserved(stats, StatPool::kLarge,
                   -static_cast<std::int64_t>(region.segment.size_bytes));
    count_segment(stats, StatPool::kLarge, -1);
  });
}

std::uint64_t RegionStore::largest_free_bytes() const {
  const std::lock_guard lock(lock_);
  return heap_.largest_free();
}

void RegionStore::check_invariants() const {
  const std::lock_guard lock(lock_);
  heap_.check_invariants();
  std::uint64_t whole = 0;
  for (const auto& region : regions_) {
    if (region->whole == nullptr) continue;
    ++whole;
    TENON_CHECK(region->whole->state == Block::State::kFree &&
                    region->whole->offset == region->offset &&
                    region->whole->size == region->segment.size_bytes,
                "the region at {} is not wholly free", region->offset);
  }
  TENON_CHECK(whole == whole_regions_, "{} free regions, {} counted", whole, whole_regions_);
}

}  // namespace tenon::host
