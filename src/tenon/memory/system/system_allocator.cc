#include "tenon/memory/system/system_allocator.h"

#include "tenon/base/check.h"
#include "tenon/base/error.h"

namespace tenon {

SystemAllocator::~SystemAllocator() {
  live_.for_each([&](const void*, Block* block) { unreleased_.push_back(block->segment); });
  for (const Segment& segment : unreleased_)
    ignore_refusal([&] { backend_.free_segment(segment); });
}

// Counts the bytes as held, unless the limit forbids it.
bool SystemAllocator::hold(std::uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  if (limit_bytes_ != 0 && size_bytes > limit_bytes_ - held_bytes_) return false;
  held_bytes_ += size_bytes;
  return true;
}

// Nothing where the driver has no memory or the limit, which counts the driver's rounding too, has
// no room.
std::optional<Segment> SystemAllocator::take_segment(std::uint64_t size_bytes, Growth* growth) {
  growth->of_driver = hold(size_bytes);
  if (!growth->of_driver) return std::nullopt;
  const auto cancel_hold = [&] {
    const std::lock_guard lock(mutex_);
    held_bytes_ -= size_bytes;
  };
  std::optional<Segment> segment;
  try {
    segment = backend_.allocate_segment(size_bytes);
  } catch (...) {
    cancel_hold();
    throw;
  }
  if (segment && hold(segment->size_bytes - size_bytes)) return segment;
  cancel_hold();
  growth->of_driver = !segment;
  if (segment) ignore_refusal([&] { backend_.free_segment(*segment); });
  return std::nullopt;
}

DataPtr SystemAllocator::allocate_on(std::size_t size_bytes, Stream stream) {
  check_request(size_bytes, stream);
  if (size_bytes == 0) return DataPtr(device_);
  Growth growth;
  auto segment = take_segment(size_bytes, &growth);
  if (!segment && reclaim_for_retry(growth.of_driver)) segment = take_segment(size_bytes, &growth);
  if (!segment) {
    {
      const std::lock_guard lock(mutex_);
      ++stats_.num_ooms;
    }
    throw_out_of_memory(size_bytes, stream,
                        limit_bytes_ != 0 ? limit_bytes_ : backend_.total_bytes(), "",
                        growth.of_driver);
  }
  Block* block = nullptr;
  {
    const std::lock_guard lock(mutex_);
    try {
      if (serials_.size() <= stream.id) serials_.resize(stream.id + 1);
      block = blocks_.create(this, *segment, size_bytes, serials_[stream.id], stream);
      live_.insert(segment->base, block);
    } catch (...) {
      if (block != nullptr) blocks_.destroy(block);
      held_bytes_ -= segment->size_bytes;
      ignore_refusal([&] { backend_.free_segment(*segment); });
      throw;
    }
    ++serials_[stream.id];
    counters_.count_placed(segment->size_bytes, size_bytes);
    count_segment(stats_, StatPool::kLarge, +1);
    count_reserved(stats_, StatPool::kLarge, static_cast<std::int64_t>(segment->size_bytes));
  }
  observers_.report(MemoryEvent::kAllocated, segment->base, size_bytes, stream);
  return DataPtr(segment->base, block, &free_block, device_);
}

void SystemAllocator::free_block(void* context) {
  Block* block = static_cast<Block*>(context);
  SystemAllocator& self = *block->owner;
  const Block freed = *block;
  {
    const std::lock_guard lock(self.mutex_);
    self.counters_.count_released(freed.segment.size_bytes, freed.requested_bytes);
    self.live_.take(freed.segment.base);
    self.blocks_.destroy(block);
  }
  try {
    self.release(freed.segment);
  } catch (...) {
    // The driver still holds it. The free throws the reason; the memory stays counted.
    const std::lock_guard lock(self.mutex_);
    self.unreleased_.push_back(freed.segment);
    throw;
  }
  for (const MemoryEvent event : {MemoryEvent::kFreed, MemoryEvent::kReleased})
    self.observers_.report(event, freed.segment.base, freed.requested_bytes, freed.stream);
}

void SystemAllocator::release(const Segment& segment) {
  backend_.free_segment(segment);
  const std::lock_guard lock(mutex_);
  held_bytes_ -= segment.size_bytes;
  count_segment(stats_, StatPool::kLarge, -1);
  count_reserved(stats_, StatPool::kLarge, -static_cast<std::int64_t>(segment.size_bytes));
}

void SystemAllocator::empty_cache() {
  std::vector<Segment> again;
  {
    const std::lock_guard lock(mutex_);
    again.swap(unreleased_);
  }
  while (!again.empty()) {
    try {
      release(again.back());
    } catch (...) {
      const std::lock_guard lock(mutex_);
      unreleased_.insert(unreleased_.end(), again.begin(), again.end());
      throw;
    }
    again.pop_back();
  }
}

AllocatorStats SystemAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  AllocatorStats out = stats_;
  counters_.add_to(out);
  return out;
}

void SystemAllocator::reset_peak_stats() {
  const std::lock_guard lock(mutex_);
  reset_peaks(stats_);
  counters_.reset_peaks();
}

// Every block is a segment of its own, so its place is its number.
std::uint64_t SystemAllocator::layout_offset(const DataPtr& data) const {
  return static_cast<const Block*>(data.get_context())->serial;
}

void SystemAllocator::check_invariants() const {
  const std::lock_guard lock(mutex_);
  TENON_CHECK(counters_.blocks() == static_cast<std::int64_t>(live_.size()),
              "{} blocks counted, {} held", counters_.blocks(), live_.size());
}

}  // namespace tenon
