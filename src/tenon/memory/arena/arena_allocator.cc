#include "tenon/memory/arena/arena_allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <mutex>

#include "tenon/base/check.h"
#include "tenon/base/error.h"

namespace tenon {

using arena::PooledBuffer;

namespace {

constexpr std::uint32_t kMaxStreams = 1 << 16;  // stream ids are dense; a larger one is a mistake

}  // namespace

ArenaAllocator::ArenaAllocator(Backend& backend, const ArenaOptions& options)
    : DeviceAllocator(backend),
      options_(options),
      system_(backend),
      bins_(options.max_per_size) {
  if (options.max_per_size == 0)
    throw InvalidArgument("the arena must keep at least one buffer of each size, not 0");
}

DataPtr ArenaAllocator::allocate_on(std::size_t size_bytes, Stream stream) {
  check_request(size_bytes, stream);
  if (size_bytes == 0) return DataPtr(device_);
  const std::uint32_t size_class = arena::size_class_of(size_bytes);
  PooledBuffer* buffer = nullptr;
  {
    const std::lock_guard lock(lock_);
    buffer = bins_.take(stream.id, size_class);
    if (buffer != nullptr) [[likely]] hand_out(buffer, size_bytes);
  }
  if (buffer != nullptr) [[likely]] {
    observers_.report(MemoryEvent::kRecycled, buffer->data, size_bytes, stream);
  } else {
    buffer = create(size_bytes, size_class, stream);
    observers_.report(MemoryEvent::kAllocated, buffer->data, size_bytes, stream);
  }
  return DataPtr(buffer->data, buffer, &free_buffer, device_);
}

inline void ArenaAllocator::hand_out(PooledBuffer* buffer, std::size_t size_bytes) {
  buffer->requested_bytes = size_bytes;
  stats_.allocation[0].increase(1);
  stats_.allocated_bytes[0].increase(static_cast<std::int64_t>(buffer->size_bytes()));
  stats_.requested_bytes[0].increase(static_cast<std::int64_t>(size_bytes));
}

PooledBuffer* ArenaAllocator::create(std::size_t size_bytes, std::uint32_t size_class,
                                     Stream stream) {
  if (stream.id >= kMaxStreams)
    throw InvalidArgument(fmt::format("{} is no stream that a backend handed out",
                                      to_string(stream)));
  DataPtr memory = from_driver(size_bytes, arena::size_class_bytes(size_class), stream);
  const std::lock_guard lock(lock_);
  PooledBuffer* buffer = bins_.create(this, stream.id, size_class, std::move(memory));
  hand_out(buffer, size_bytes);
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
    const std::lock_guard lock(lock_);
    ++stats_.num_alloc_retries;
  }
  {
    const std::lock_guard lock(lock_);
    ++stats_.num_ooms;
  }
  throw_out_of_memory(size_bytes, stream, limit != 0 ? limit : backend_.memory().total_bytes,
                      "its free buffers were given back already: a policy that splits and merges "
                      "blocks needs less, such as stitched");
}

void ArenaAllocator::free_buffer(void* context) {
  auto* buffer = static_cast<PooledBuffer*>(context);
  auto& self = *static_cast<ArenaAllocator*>(buffer->owner);
  void* const data = buffer->data;
  const Stream stream{self.device_, buffer->stream};
  const bool keep = !buffer->used_elsewhere || self.order_after_users(buffer);
  std::uint64_t requested = 0;
  bool kept = false;
  {
    const std::lock_guard lock(self.lock_);
    if (!buffer->in_use) [[unlikely]]
      throw InvalidPointer(fmt::format("free({}): this buffer was freed already", data));
    requested = buffer->requested_bytes;
    self.stats_.allocation[0].decrease(1);
    self.stats_.allocated_bytes[0].decrease(static_cast<std::int64_t>(buffer->size_bytes()));
    self.stats_.requested_bytes[0].decrease(static_cast<std::int64_t>(requested));
    kept = keep && self.bins_.put(buffer);
  }
  self.observers_.report(MemoryEvent::kFreed, data, requested, stream);
  if (!kept) [[unlikely]] self.give_back(buffer);
}

void ArenaAllocator::give_back(PooledBuffer* surplus) {
  std::vector<DataPtr> memory;
  {
    const std::lock_guard lock(lock_);
    memory.push_back(bins_.destroy(surplus));
  }
  give_back(std::move(memory));
}

// False when no event could be had: then only the driver, which waits for everything, may take it.
bool ArenaAllocator::order_after_users(PooledBuffer* buffer) {
  std::vector<Stream> users;
  {
    const std::lock_guard lock(lock_);
    users = std::move(other_users_[buffer]);
    other_users_.erase(buffer);
    buffer->used_elsewhere = false;
  }
  try {
    for (const Stream user : users) {
      const Event event = backend_.record(user);
      backend_.stream_wait({device_, buffer->stream}, event);
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
  if (data.get_deleter() != &free_buffer || buffer->owner != this)
    throw InvalidPointer(fmt::format("record_stream({}): not a block of this allocator",
                                     data.get()));
  if (buffer->stream == stream.id) return;
  const std::lock_guard lock(lock_);
  std::vector<Stream>& users = other_users_[buffer];
  if (std::find(users.begin(), users.end(), stream) == users.end()) users.push_back(stream);
  buffer->used_elsewhere = true;
}

void ArenaAllocator::empty_cache() {
  std::vector<DataPtr> memory;
  {
    const std::lock_guard lock(lock_);
    memory = bins_.drain();
  }
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
  const std::lock_guard lock(lock_);
  stats.allocation = stats.active = stats_.allocation;
  stats.allocated_bytes = stats.active_bytes = stats_.allocated_bytes;
  stats.requested_bytes = stats_.requested_bytes;
  stats.num_alloc_retries = stats_.num_alloc_retries;
  stats.num_ooms = stats_.num_ooms;
  for (PoolStats* pools : {&stats.allocation, &stats.active, &stats.allocated_bytes,
                           &stats.active_bytes, &stats.requested_bytes, &stats.segment,
                           &stats.reserved_bytes})
    (*pools)[static_cast<std::size_t>(StatPool::kLarge)] = (*pools)[0];
  return stats;
}

void ArenaAllocator::reset_peak_stats() {
  system_.reset_peak_stats();
  const std::lock_guard lock(lock_);
  reset_peaks(stats_);
}

std::uint64_t ArenaAllocator::largest_free_bytes() const {
  const std::lock_guard lock(lock_);
  std::uint64_t largest = 0;
  for (const PooledBuffer* buffer : bins_.all())
    if (!buffer->in_use) largest = std::max(largest, buffer->size_bytes());
  return largest;
}

std::vector<SegmentInfo> ArenaAllocator::snapshot() const {
  const std::lock_guard lock(lock_);
  std::vector<SegmentInfo> segments;
  for (const PooledBuffer* buffer : bins_.all()) {
    SegmentInfo segment;
    segment.address = reinterpret_cast<std::uintptr_t>(buffer->data);
    segment.size_bytes = buffer->size_bytes();
    segment.stream = {device_, buffer->stream};
    BlockInfo block{segment.address, segment.size_bytes};
    if (buffer->in_use) {
      block.state = BlockInfo::State::kActive;
      block.requested_bytes = buffer->in_use ? buffer->requested_bytes : 0;
    }
    segment.blocks.push_back(block);
    segments.push_back(std::move(segment));
  }
  return segments;
}

std::uint64_t ArenaAllocator::layout_offset(const DataPtr& data) const {
  return static_cast<const PooledBuffer*>(data.get_context())->serial;
}

void ArenaAllocator::check_invariants() const {
  system_.check_invariants();
  const std::lock_guard lock(lock_);
  std::int64_t in_use = 0;
  std::int64_t bytes = 0;
  for (const PooledBuffer* buffer : bins_.all()) {
    TENON_CHECK(buffer->owner == this, "a buffer of somebody else");
    if (!buffer->in_use) continue;
    ++in_use;
    bytes += static_cast<std::int64_t>(buffer->size_bytes());
  }
  TENON_CHECK(in_use == stats_.allocation[0].current, "{} buffers in use, counted {}", in_use,
              stats_.allocation[0].current);
  TENON_CHECK(bytes == stats_.allocated_bytes[0].current, "{} bytes in use, counted {}", bytes,
              stats_.allocated_bytes[0].current);
}

}  // namespace tenon
