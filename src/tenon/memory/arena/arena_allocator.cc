#include "tenon/memory/arena/arena_allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <mutex>

#include "tenon/base/check.h"
#include "tenon/base/error.h"

namespace tenon {

using arena::PooledBuffer;

ArenaAllocator::ArenaAllocator(Backend& backend, const ArenaOptions& options)
    : DeviceAllocator(backend),
      options_(options),
      system_(backend) {
  if (options.max_per_size == 0)
    throw InvalidArgument("the arena must keep at least one buffer of each size, not 0");
}

// The common path calls nothing: see Note [no frame].
DataPtr ArenaAllocator::allocate_on(std::size_t size_bytes, Stream stream) {
  check_request(size_bytes, stream);
  Lane* lane = lanes_.find(stream);
  if (lane != nullptr && size_bytes != 0 && observers_.empty() &&
      lane->lock.try_lock_as_owner()) [[likely]] {
    PooledBuffer* buffer = lane->take(arena::size_class_of(size_bytes), size_bytes);
    lane->lock.unlock_as_owner();
    if (buffer != nullptr) [[likely]]
      return DataPtr(buffer->data, buffer, &free_buffer, device_);
  }
  return allocate_by_steps(size_bytes, stream);
}

DataPtr ArenaAllocator::allocate_by_steps(std::size_t size_bytes, Stream stream) {
  if (size_bytes == 0) return DataPtr(device_);
  const std::uint32_t size_class = arena::size_class_of(size_bytes);
  Lane& lane = lane_of(stream);
  PooledBuffer* buffer = nullptr;
  {
    const BiasedGuard lock(lane.lock);
    buffer = lane.take(size_class, size_bytes);
  }
  if (buffer != nullptr) {
    observers_.report(MemoryEvent::kRecycled, buffer->data, size_bytes, stream);
  } else {
    buffer = create(lane, size_bytes, size_class);
    observers_.report(MemoryEvent::kAllocated, buffer->data, size_bytes, stream);
  }
  return DataPtr(buffer->data, buffer, &free_buffer, device_);
}

ArenaAllocator::Lane& ArenaAllocator::make_lane(Stream stream) {
  const std::lock_guard lock(lanes_mutex_);
  if (Lane* lane = lanes_.find(stream)) return *lane;
  return totals_.add_lane(lanes_, stream,
                          std::make_unique<Lane>(*this, stream, options_.max_per_size));
}

PooledBuffer* ArenaAllocator::create(Lane& lane, std::size_t size_bytes,
                                     std::uint32_t size_class) {
  const std::uint64_t class_bytes = arena::size_class_bytes(size_class);
  DataPtr memory = from_driver(size_bytes, class_bytes, lane.stream);
  const std::lock_guard lock(lane.lock);
  PooledBuffer* buffer = lane.bins.create(&lane, lane.stream.id, size_class, std::move(memory));
  buffer->requested_bytes = size_bytes;
  lane.counters.count_placed(class_bytes, size_bytes);
  return buffer;
}

// Memory for a new buffer, if need be after everything free went back.
DataPtr ArenaAllocator::from_driver(std::size_t size_bytes, std::uint64_t class_bytes,
                                    Stream stream) {
  const std::uint64_t limit = options_.limit_bytes;
  for (bool retried = false;; retried = true) {
    if (limit == 0 || system_.reserved_bytes() + class_bytes <= limit) {
      try {
        return system_.allocate_on(class_bytes, stream);
      } catch (const OutOfMemory&) {
        // Told again below, with this allocator's figures, if a second try fails too.
      }
    }
    if (retried) break;
    empty_cache();
    ++num_alloc_retries_;
  }
  ++num_ooms_;
  throw_out_of_memory(size_bytes, stream, limit != 0 ? limit : backend_.total_bytes(),
                      "its free buffers were given back already: a policy that splits and merges "
                      "blocks needs less, such as stitched");
}

void ArenaAllocator::free_buffer(void* context) {
  auto* buffer = static_cast<PooledBuffer*>(context);
  auto& lane = *static_cast<Lane*>(buffer->owner);
  if (!buffer->used_elsewhere && lane.arena.observers_.empty() &&
      lane.lock.try_lock_as_owner()) [[likely]] {
    const bool kept = buffer->in_use && lane.bins.has_room_for(buffer);
    if (kept) [[likely]] {
      lane.count_released(buffer);
      lane.bins.put(buffer);
    }
    lane.lock.unlock_as_owner();
    if (kept) [[likely]] return;
  }
  free_by_steps(buffer);
}

void ArenaAllocator::free_by_steps(PooledBuffer* buffer) {
  auto& lane = *static_cast<Lane*>(buffer->owner);
  void* const data = buffer->data;
  const bool keep = !buffer->used_elsewhere || lane.arena.order_after_users(lane, buffer);
  std::uint64_t requested = 0;
  bool kept = false;
  {
    const BiasedGuard lock(lane.lock);
    if (!buffer->in_use) [[unlikely]]
      throw InvalidPointer(fmt::format("free({}): this buffer was freed already", data));
    requested = buffer->requested_bytes;
    lane.count_released(buffer);
    kept = keep && lane.bins.has_room_for(buffer);
    if (kept)
      lane.bins.put(buffer);
    else
      buffer->in_use = false;
  }
  lane.arena.observers_.report(MemoryEvent::kFreed, data, requested, lane.stream);
  if (!kept) [[unlikely]] lane.arena.give_back(lane, buffer);
}

void ArenaAllocator::give_back(Lane& lane, PooledBuffer* surplus) {
  std::vector<DataPtr> memory;
  {
    const std::lock_guard lock(lane.lock);
    memory.push_back(lane.bins.destroy(surplus));
  }
  give_back(std::move(memory));
}

// False when no event could be had: then only the driver, which waits for everything, may take it.
bool ArenaAllocator::order_after_users(Lane& lane, PooledBuffer* buffer) {
  std::vector<Stream> users;
  {
    const std::lock_guard lock(lane.lock);
    users = std::move(lane.other_users[buffer]);
    lane.other_users.erase(buffer);
    buffer->used_elsewhere = false;
  }
  try {
    for (const Stream user : users) {
      const Event event = backend_.record(user);
      backend_.stream_wait(lane.stream, event);
      backend_.destroy_event(event);
    }
    return true;
  } catch (const DeviceError&) {
    return false;
  }
}

void ArenaAllocator::record_stream(const DataPtr& data, Stream stream) {
  if (stream.device != device_)
    throw InvalidArgument(fmt::format("record_stream: {} does not belong to {}", to_string(stream),
                                      to_string(device_)));
  if (data == nullptr) return;
  auto* buffer = static_cast<PooledBuffer*>(data.get_context());
  if (data.get_deleter() != &free_buffer || &static_cast<Lane*>(buffer->owner)->arena != this)
    throw InvalidPointer(fmt::format("record_stream({}): not a block of this allocator",
                                     data.get()));
  auto& lane = *static_cast<Lane*>(buffer->owner);
  if (lane.stream == stream) return;
  const std::lock_guard lock(lane.lock);
  std::vector<Stream>& users = lane.other_users[buffer];
  if (std::find(users.begin(), users.end(), stream) == users.end()) users.push_back(stream);
  buffer->used_elsewhere = true;
}

void ArenaAllocator::empty_cache() {
  std::vector<DataPtr> memory;
  lanes_.for_each([&](Lane& lane) {
    const std::lock_guard lock(lane.lock);
    lane.bins.drain(memory);
  });
  give_back(std::move(memory));
}

// What the driver does not take back stays with the system allocator; the first error is thrown
// once everything was tried.
void ArenaAllocator::give_back(std::vector<DataPtr> memory) {
  std::exception_ptr error;
  for (DataPtr& piece : memory) {
    void* const data = piece.get();
    const std::uint64_t held = system_.reserved_bytes();
    try {
      piece.clear();
      observers_.report(MemoryEvent::kReleased, data, held - system_.reserved_bytes(),
                        {device_, 0});
    } catch (...) {
      if (error == nullptr) error = std::current_exception();
    }
  }
  if (error != nullptr) std::rethrow_exception(error);
}

AllocatorStats ArenaAllocator::stats() const {
  AllocatorStats stats = system_.stats();
  for (PoolStats* counted : {&stats.allocation, &stats.allocated_bytes, &stats.requested_bytes})
    *counted = {};
  {
    const std::lock_guard lock(lanes_mutex_);
    totals_.add_to(stats, lanes_);
  }
  stats.num_alloc_retries = num_alloc_retries_;
  stats.num_ooms = num_ooms_;
  for (PoolStats* pools : {&stats.allocation, &stats.active, &stats.allocated_bytes,
                           &stats.active_bytes, &stats.requested_bytes, &stats.segment,
                           &stats.reserved_bytes})
    (*pools)[static_cast<std::size_t>(StatPool::kLarge)] = (*pools)[0];
  return stats;
}

void ArenaAllocator::reset_peak_stats() {
  system_.reset_peak_stats();
  const std::lock_guard lock(lanes_mutex_);
  totals_.reset_peaks(lanes_);
}

std::uint64_t ArenaAllocator::largest_free_bytes() const {
  std::uint64_t largest = 0;
  lanes_.for_each([&](Lane& lane) {
    const std::lock_guard lock(lane.lock);
    for (const PooledBuffer* buffer : lane.bins.all())
      if (!buffer->in_use) largest = std::max(largest, buffer->size_bytes());
  });
  return largest;
}

std::vector<SegmentInfo> ArenaAllocator::snapshot() const {
  std::vector<SegmentInfo> segments;
  lanes_.for_each([&](Lane& lane) {
    const std::lock_guard lock(lane.lock);
    for (const PooledBuffer* buffer : lane.bins.all()) {
      SegmentInfo segment;
      segment.address = reinterpret_cast<std::uintptr_t>(buffer->data);
      segment.size_bytes = buffer->size_bytes();
      segment.stream = lane.stream;
      BlockInfo block{segment.address, segment.size_bytes};
      if (buffer->in_use) {
        block.state = BlockInfo::State::kActive;
        block.requested_bytes = buffer->requested_bytes;
      }
      segment.blocks.push_back(block);
      segments.push_back(std::move(segment));
    }
  });
  return segments;
}

std::uint64_t ArenaAllocator::layout_offset(const DataPtr& data) const {
  return static_cast<const PooledBuffer*>(data.get_context())->serial;
}

void ArenaAllocator::check_invariants() const {
  system_.check_invariants();
  lanes_.for_each([&](Lane& lane) {
    const std::lock_guard lock(lane.lock);
    std::int64_t in_use = 0, bytes = 0;
    for (const PooledBuffer* buffer : lane.bins.all()) {
      TENON_CHECK(buffer->owner == &lane, "a buffer of somebody else");
      if (!buffer->in_use) continue;
      ++in_use;
      bytes += static_cast<std::int64_t>(buffer->size_bytes());
    }
    TENON_CHECK(in_use == lane.counters.blocks.current() &&
                    bytes == lane.counters.bytes.current(),
                "{} buffers of {} bytes in use on {}, counted {} of {}", in_use, bytes,
                to_string(lane.stream), lane.counters.blocks.current(),
                lane.counters.bytes.current());
  });
}

}  // namespace tenon
