#include "tenon/memory/gpu/pinned_allocator.h"

#include <algorithm>
#include <utility>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/check.h"
#include "tenon/base/error.h"
#include "tenon/base/reserve.h"

namespace tenon {
namespace {

constexpr std::uint64_t kRounding = 512;
constexpr std::uint64_t kSharedLimit = kMiB;
constexpr std::uint64_t kSharedSegment = 2 * kMiB;
constexpr std::uint64_t kPage = 4 * kKiB;

std::int64_t as_signed(std::uint64_t value) { return static_cast<std::int64_t>(value); }

}  // namespace

PinnedAllocator::~PinnedAllocator() {
  idle_cache_.end();
  ignore_refusal([&] { collect(true); });
  for (const auto& extent : extents_)
    ignore_refusal([&] { backend_.free_segment(extent->segment); });
}

DataPtr PinnedAllocator::allocate_on(std::size_t size_bytes, Stream stream) {
  check_request(size_bytes, stream);
  if (size_bytes == 0) return DataPtr(device_);
  const std::uint64_t rounded = align_up(size_bytes, kRounding);
  Growth growth;
  Block* block = obtain(rounded, size_bytes, stream, &growth);
  if (block == nullptr && reclaim_for_retry(growth.of_driver))
    block = obtain(rounded, size_bytes, stream, &growth);
  if (block == nullptr) {
    {
      const std::lock_guard lock(mutex_);
      ++stats_.num_ooms;
    }
    throw_out_of_memory(size_bytes, stream, limit_bytes_,
                        "pinned memory is the host's; free some, or use pageable memory",
                        growth.of_driver);
  }
  void* data = reinterpret_cast<void*>(block->offset);
  observers_.report(growth.grown ? MemoryEvent::kAllocated : MemoryEvent::kRecycled, data,
                    size_bytes, stream);
  return DataPtr(data, block, &free_block, device_);
}

// Null: out of memory.
Block* PinnedAllocator::obtain(std::uint64_t rounded, std::uint64_t size_bytes, Stream stream,
                               Growth* growth) {
  const std::lock_guard lock(mutex_);
  Block* block = place(rounded);
  if (block == nullptr && grow(rounded, growth)) {
    growth->grown = true;
    block = place(rounded);
  }
  if (block == nullptr) return nullptr;
  try {
    pending_.record_use(block, stream);
  } catch (...) {
    heap_.release(block);
    throw;
  }
  block->requested = size_bytes;
  counters_.count_placed(block->size, size_bytes);
  return block;
}

Block* PinnedAllocator::place(std::uint64_t rounded) {
  if (Block* block = heap_.place(rounded, kRounding, kRounding)) return block;
  collect(false);
  return heap_.place(rounded, kRounding, kRounding);
}

bool PinnedAllocator::grow(std::uint64_t rounded, Growth* growth) {
  const std::uint64_t size =
      rounded <= kSharedLimit ? kSharedSegment : align_up(rounded, kPage);
  const auto take = [&]() -> std::optional<Segment> {
    const auto held = static_cast<std::uint64_t>(stats_.reserved_bytes[0].current);
    growth->of_driver = limit_bytes_ == 0 || held + size <= limit_bytes_;
    if (!growth->of_driver) return std::nullopt;
    return backend_.allocate_segment(size, MemoryKind::kPinned);
  };
  auto segment = take();
  if (!segment) {
    if (!std::exchange(growth->retried, true)) ++stats_.num_alloc_retries;
    collect(true);
    if (heap_.find(rounded) != nullptr) return true;
    release_whole();
    segment = take();
  }
  if (!segment) return false;
  try {
    auto extent = std::make_unique<Extent>(Extent{this, *segment, layout_end_});
    reserve_more(extents_);
    heap_.add_extent(reinterpret_cast<std::uintptr_t>(segment->base), segment->size_bytes)->owner =
        extent.get();
    extents_.push_back(std::move(extent));
  } catch (...) {
    ignore_refusal([&] { backend_.free_segment(*segment); });
    throw;
  }
  layout_end_ += segment->size_bytes;
  count_reserved(stats_, StatPool::kLarge, as_signed(segment->size_bytes));
  count_segment(stats_, StatPool::kLarge, +1);
  return true;
}

void PinnedAllocator::free_block(void* context) {
  Block* block = static_cast<Block*>(context);
  PinnedAllocator& self = *static_cast<Extent*>(block->owner)->self;
  void* const data = reinterpret_cast<void*>(block->offset);
  const std::uint64_t requested = block->requested;
  Stream stream{self.device_, 0};
  {
    const std::lock_guard lock(self.mutex_);
    stream = PendingFrees::first_stream(block);
    self.pending_.add(block);
    self.counters_.count_released(block->size, requested);
  }
  self.observers_.report(MemoryEvent::kFreed, data, requested, stream);
}

void PinnedAllocator::record_stream(const DataPtr& data, Stream stream) {
  if (data == nullptr) return;
  if (stream.device != device_)
    raise<InvalidArgument>("record_stream: {} does not belong to {}", to_string(stream),
                           to_string(device_));
  const std::lock_guard lock(mutex_);
  pending_.record_use(block_of(data, "record_stream"), stream);
}

// Takes in what the device is done with; waits for all of it if `wait`.
void PinnedAllocator::collect(bool wait) {
  pending_.process(wait, [&](Block* block) {
    block->requested = 0;
    heap_.release(block);
  });
}

bool PinnedAllocator::release_whole() {
  std::vector<Block*> whole;
  heap_.for_each_free([&](Block* block) {
    if (block->prev == nullptr && block->next == nullptr) whole.push_back(block);
  });
  for (Block* block : whole) {
    auto* extent = static_cast<Extent*>(block->owner);
    backend_.free_segment(extent->segment);
    count_reserved(stats_, StatPool::kLarge, -as_signed(extent->segment.size_bytes));
    count_segment(stats_, StatPool::kLarge, -1);
    heap_.remove_extent(block);
    extents_.erase(std::find_if(extents_.begin(), extents_.end(),
                                [&](const auto& held) { return held.get() == extent; }));
  }
  return !whole.empty();
}

void PinnedAllocator::empty_cache() {
  const std::lock_guard lock(mutex_);
  collect(true);
  release_whole();
}

// --- Accounts.

Block* PinnedAllocator::block_of(const DataPtr& data, const char* caller) const {
  if (data.get_deleter() == &free_block && data.get_context() != nullptr) {
    Block* block = static_cast<Block*>(data.get_context());
    if (static_cast<const Extent*>(block->owner)->self == this) return block;
  }
  raise<InvalidPointer>("{}({}): not a block of pinned memory of {}", caller, data.get(),
                        to_string(device_));
}

AllocatorStats PinnedAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  AllocatorStats out = stats_;
  counters_.add_to(out);
  return out;
}

void PinnedAllocator::reset_peak_stats() {
  const std::lock_guard lock(mutex_);
  reset_peaks(stats_);
  counters_.reset_peaks();
}

std::uint64_t PinnedAllocator::largest_free_bytes() const {
  const std::lock_guard lock(mutex_);
  return heap_.largest_free();
}

std::uint64_t PinnedAllocator::layout_offset(const DataPtr& data) const {
  const Block* block = block_of(data, "layout_offset");
  const auto* extent = static_cast<const Extent*>(block->owner);
  return extent->layout_base + block->offset -
         reinterpret_cast<std::uintptr_t>(extent->segment.base);
}

void PinnedAllocator::check_invariants() const {
  const std::lock_guard lock(mutex_);
  heap_.check_invariants();
  std::uint64_t held = 0;
  for (const auto& extent : extents_) held += extent->segment.size_bytes;
  TENON_CHECK(held == static_cast<std::uint64_t>(stats_.reserved_bytes[0].current),
              "segments hold {} bytes, reserved are {}", held, stats_.reserved_bytes[0].current);
}

}  // namespace tenon
