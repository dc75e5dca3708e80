// What may be asked of and told to a unified allocator besides memory.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tenon/base/check.h"
#include "tenon/base/error.h"
#include "tenon/memory/unified/unified_allocator.h"

namespace tenon {

using unified::Buffer;
using unified::BufferPool;
using unified::BufferUse;
using unified::Storage;
using unified::StreamPoint;

// --- Caches.

void UnifiedAllocator::empty_cache() {
  std::vector<unified::HeapSupply::Released> released;
  const auto empty = [&] {
    const std::lock_guard lock(mutex_);
    settle_everything();
    for_each_pool([](BufferPool& pool) { pool.merge_cached(); });
    while (supply_.oldest_idle() != nullptr) supply_.release(supply_.oldest_idle());
    released = supply_.take_released();
  };
  empty();
  report_released(released);
}

std::uint64_t UnifiedAllocator::free_inactive_buffers() {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  for_each_pool([&](BufferPool& pool) { bytes += settle_pending(pool); });
  return bytes;
}

std::uint64_t UnifiedAllocator::set_cache_limit(std::uint64_t bytes) {
  const std::uint64_t before = limits_.set_cache_limit(bytes);
  std::vector<unified::HeapSupply::Released> released;
  {
    const std::lock_guard lock(mutex_);
    trim_to_cache_limit();
    released = supply_.take_released();
  }
  report_released(released);
  return before;
}

// --- Scalars.

DataPtr UnifiedAllocator::alloc_scalar_buffer_with_value(const void* value,
                                                         std::size_t size_bytes) {
  if (size_bytes == 0 || size_bytes > unified::kMaxScalarBytes || value == nullptr)
    throw InvalidArgument(fmt::format("a scalar buffer needs a value of 1 to {} bytes, not {}{}",
                                      unified::kMaxScalarBytes, size_bytes,
                                      value == nullptr ? " at null" : ""));
  const Stream stream = current_stream(device_);
  DataPtr scalar = obtain(make_request(size_bytes, stream, default_storage_, true));
  // In stream order: work in flight may still read what the bytes held before.
  if (backend_.limits().has_real_memory) backend_.copy(scalar.get(), value, size_bytes, stream);
  return scalar;
}

// --- Buffers by address.

Buffer* UnifiedAllocator::find_in_use(const void* data, const char* call) const {
  Buffer* buffer = records_.find(data);
  if (buffer == nullptr || buffer->state != Buffer::State::kInUse) [[unlikely]]
    refuse_pointer(data, call);
  return buffer;
}

void UnifiedAllocator::refuse_pointer(const void* data, const char* call) const {
  const bool known = records_.find(data) != nullptr;
  throw InvalidPointer(fmt::format(
      "{}({}): {} on {}; pass the first byte of a buffer that is in use", call, data,
      known ? "this buffer was freed already" : "no buffer of the unified allocator starts there",
      to_string(device_)));
}

std::size_t UnifiedAllocator::get_unaligned_buffer_size(const void* data) const {
  const std::lock_guard lock(mutex_);
  return find_in_use(data, "get_unaligned_buffer_size")->requested_bytes;
}

std::size_t UnifiedAllocator::get_buffer_size(const void* data) const {
  const std::lock_guard lock(mutex_);
  return find_in_use(data, "get_buffer_size")->size_bytes();
}

std::uint64_t UnifiedAllocator::get_buffer_id(const void* data) const {
  const std::lock_guard lock(mutex_);
  return find_in_use(data, "get_buffer_id")->id;
}

std::vector<std::int64_t> UnifiedAllocator::get_buffer_shape(const void* data) const {
  const std::lock_guard lock(mutex_);
  const Buffer* buffer = find_in_use(data, "get_buffer_shape");
  return buffer->shape == nullptr ? std::vector<std::int64_t>() : *buffer->shape;
}

void UnifiedAllocator::set_buffer_shape(const void* data, std::span<const std::int64_t> shape) {
  const std::lock_guard lock(mutex_);
  Buffer* buffer = find_in_use(data, "set_buffer_shape");
  if (buffer->shape == nullptr) buffer->shape = new std::vector<std::int64_t>;
  buffer->shape->assign(shape.begin(), shape.end());
}

bool UnifiedAllocator::is_shared_buffer(const void* data) const {
  const std::lock_guard lock(mutex_);
  return find_in_use(data, "is_shared_buffer")->heap->pool->storage() == Storage::kShared;
}

SharedBufferPtr UnifiedAllocator::get_shared_buffer_ptr(const void* data) const {
  const std::lock_guard lock(mutex_);
  const Buffer* buffer = find_in_use(data, "get_shared_buffer_ptr");
  SharedBufferPtr shared;
  shared.offset_bytes = buffer->place->offset - buffer->heap->base_offset;
  shared.retain_count = 1;
  for (const BufferUse* use = buffer->uses; use != nullptr; use = use->next)
    if (use->open || !clocks_.is_done(use->point)) ++shared.retain_count;
  if (const auto* host = static_cast<const std::byte*>(buffer->heap->segment.host);
      host != nullptr && buffer->heap->pool->storage() == Storage::kShared)
    shared.host = host + shared.offset_bytes;
  return shared;
}

// --- Events.

void UnifiedAllocator::record_stream(const DataPtr& data, Stream stream) {
  if (stream.device != device_)
    throw InvalidArgument(fmt::format("record_stream: {} does not belong to {}", to_string(stream),
                                      to_string(device_)));
  if (data == nullptr) return;
  const std::lock_guard lock(mutex_);
  Buffer* buffer = find_in_use(data.get(), "record_stream");
  if (buffer->stream == stream.id) return;
  records_.add_use(buffer, clocks_.tick(stream.id), true);
}

bool UnifiedAllocator::record_events(Buffers buffers) {
  const std::uint32_t stream = current_stream(device_).id;
  const std::lock_guard lock(mutex_);
  for (const void* data : buffers) find_in_use(data, "record_events");
  if (buffers.empty()) return false;
  const StreamPoint point = clocks_.tick(stream);
  clocks_.mark(stream);
  for (const void* data : buffers)
    records_.add_use(find_in_use(data, "record_events"), point, false);
  return true;
}

bool UnifiedAllocator::wait_for_events(Buffers buffers) {
  const std::lock_guard lock(mutex_);
  for (const void* data : buffers) find_in_use(data, "wait_for_events");
  bool recorded = false;
  for (const void* data : buffers) {
    const Buffer* buffer = find_in_use(data, "wait_for_events");
    clocks_.wait(buffer->freed);
    for (const BufferUse* use = buffer->uses; use != nullptr; use = use->next) {
      clocks_.wait(use->point);
      recorded = true;
    }
  }
  return recorded;
}

// --- Figures.

std::uint64_t UnifiedAllocator::get_driver_allocated_memory() const {
  const BackendMemory memory = backend_.memory();
  return memory.total_bytes - memory.free_bytes;
}

std::uint64_t UnifiedAllocator::get_recommended_max_memory() const {
  return backend_.limits().recommended_working_set_bytes;
}

std::int64_t UnifiedAllocator::get_low_watermark_value() const {
  return limits_.watermarks().low_headroom_bytes(reserved_bytes());
}

std::int64_t UnifiedAllocator::get_high_watermark_value() const {
  return limits_.watermarks().high_headroom_bytes(reserved_bytes());
}

std::uint64_t UnifiedAllocator::get_active_memory() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::uint64_t>(stats_.allocated_bytes[0].current);
}

std::uint64_t UnifiedAllocator::get_peak_memory() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::uint64_t>(stats_.allocated_bytes[0].peak);
}

std::uint64_t UnifiedAllocator::get_cache_memory() const {
  const std::lock_guard lock(mutex_);
  return supply_.reserved_bytes() - static_cast<std::uint64_t>(stats_.allocated_bytes[0].current);
}

std::uint64_t UnifiedAllocator::reserved_bytes() const {
  const std::lock_guard lock(mutex_);
  return supply_.reserved_bytes();
}

AllocatorStats UnifiedAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void UnifiedAllocator::reset_peak_stats() {
  const std::lock_guard lock(mutex_);
  reset_peaks(stats_);
}

std::uint64_t UnifiedAllocator::largest_free_bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t largest = 0;
  for_each_pool([&](const BufferPool& pool) {
    largest = std::max(largest, pool.largest_free_bytes());
  });
  return largest;
}

std::vector<SegmentInfo> UnifiedAllocator::snapshot() const {
  const std::lock_guard lock(mutex_);
  std::vector<SegmentInfo> segments;
  for (const unified::BufferHeap* heap : supply_.heaps()) {
    SegmentInfo segment;
    segment.address = reinterpret_cast<std::uintptr_t>(heap->segment.base);
    segment.size_bytes = heap->segment.size_bytes;
    segment.stream = {device_, heap->pool->stream()};
    segment.small_pool = heap->pool->size_class() != unified::SizeClass::kLarge;
    for (const Block* block = heap->first; block != nullptr; block = block->next) {
      BlockInfo info;
      info.address = segment.address + (block->offset - heap->base_offset);
      info.size_bytes = block->size;
      if (block->state == Block::State::kUsed) {
        const auto* buffer = static_cast<const Buffer*>(block->context);
        if (buffer->state == Buffer::State::kInUse) {
          info.state = BlockInfo::State::kActive;
          info.requested_bytes = buffer->requested_bytes;
        } else if (buffer->state == Buffer::State::kPending) {
          info.state = BlockInfo::State::kPendingFree;
        }
      }
      segment.blocks.push_back(info);
    }
    segments.push_back(std::move(segment));
  }
  return segments;
}

// The pool's kind in the highest bits, below it the place in the range of all its heaps.
std::uint64_t UnifiedAllocator::layout_offset(const DataPtr& data) const {
  const auto* buffer = static_cast<const Buffer*>(data.get_context());
  const BufferPool& pool = *buffer->heap->pool;
  const auto kind = static_cast<std::uint64_t>(pool.storage()) * 3 +
                    static_cast<std::uint64_t>(pool.size_class());
  return kind << 60 | buffer->place->offset;
}

void UnifiedAllocator::check_invariants() const {
  const std::lock_guard lock(mutex_);
  for_each_pool([&](const BufferPool& pool) { pool.check_invariants(supply_.heaps()); });
  std::uint64_t reserved = 0;
  std::uint64_t active = 0;
  std::uint64_t allocated = 0;
  for (const unified::BufferHeap* heap : supply_.heaps()) {
    reserved += heap->segment.size_bytes;
    for (const Block* block = heap->first; block != nullptr; block = block->next) {
      if (block->state != Block::State::kUsed) continue;
      const auto* buffer = static_cast<const Buffer*>(block->context);
      if (buffer->state == Buffer::State::kInUse) allocated += block->size;
      if (buffer->state != Buffer::State::kCached) active += block->size;
    }
  }
  const auto current = [](const PoolStats& stats) {
    return static_cast<std::uint64_t>(stats[0].current);
  };
  TENON_CHECK(reserved == supply_.reserved_bytes() && reserved == current(stats_.reserved_bytes),
              "heaps hold {} bytes, counted {}", reserved, supply_.reserved_bytes());
  TENON_CHECK(allocated == current(stats_.allocated_bytes), "{} bytes in use, counted {}",
              allocated, current(stats_.allocated_bytes));
  TENON_CHECK(active == current(stats_.active_bytes), "{} bytes active, counted {}", active,
              current(stats_.active_bytes));
}

}  // namespace tenon
