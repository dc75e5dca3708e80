// Questions, metadata and figures of a unified allocator.

#include <algorithm>

#include "tenon/base/check.h"
#include "tenon/base/error.h"
#include "tenon/memory/unified/unified_allocator.h"

namespace tenon {

using unified::Buffer;
using unified::BufferPool;
using unified::BufferUse;
using unified::Lane;
using unified::Storage;

// --- Caches.

void UnifiedAllocator::empty_cache() {
  unified::HeapChanges changes;
  {
    const AllLanesLock all(*this);
    settle_everything();
    for_each_pool([](BufferPool& pool) { pool.merge_cached(); });
    release_idle([] { return true; });
    changes = supply_.take_changes();
  }
  report_heaps(changes);
}

std::uint64_t UnifiedAllocator::free_inactive_buffers() {
  const AllLanesLock all(*this);
  std::uint64_t bytes = 0;
  for_each_pool([&](BufferPool& pool) { bytes += settle_pending(pool); });
  return bytes;
}

std::uint64_t UnifiedAllocator::set_cache_limit(std::uint64_t bytes) {
  const std::uint64_t before = limits_.set_cache_limit(bytes);
  unified::HeapChanges changes;
  {
    const AllLanesLock all(*this);
    trim_to_cache_limit();
    changes = supply_.take_changes();
  }
  report_heaps(changes);
  return before;
}

// --- Scalars.

DataPtr UnifiedAllocator::alloc_scalar_buffer_with_value(const void* value,
                                                         std::size_t size_bytes) {
  if (size_bytes == 0 || size_bytes > unified::kMaxScalarBytes || value == nullptr)
    raise<InvalidArgument>("a scalar buffer needs a value of 1 to {} bytes, not {}{}",
                           unified::kMaxScalarBytes, size_bytes,
                           value == nullptr ? " at null" : "");
  const Stream stream = current_stream(device_);
  DataPtr scalar = obtain(make_request(size_bytes, stream, default_storage_, true));
  // In stream order: queued work may still read the old contents.
  if (backend_.limits().has_real_memory) backend_.copy(scalar.get(), value, size_bytes, stream);
  return scalar;
}

// --- Buffers by address.

template <typename Lock, typename Visit>
auto UnifiedAllocator::at_buffer(const void* data, const char* call, Visit&& visit) const {
  using Answer = decltype(visit(std::declval<Lane&>(), std::declval<Buffer&>()));
  std::optional<Answer> answer;
  bool known = false;
  for (const bool own : {true, false})
    lanes_.for_each([&](Lane& lane) {
      if (answer || lane.is_this_threads() != own) return;
      const Lock lock(lane.lock);
      Buffer* buffer = lane.records.find(data);
      known |= buffer != nullptr;
      if (buffer != nullptr && buffer->state == Buffer::State::kInUse)
        answer = visit(lane, *buffer);
    });
  if (!answer) [[unlikely]] refuse_pointer(data, call, known);
  return *std::move(answer);
}

Buffer* UnifiedAllocator::find_in_use(const void* data, const char* call) const {
  struct AllAreLocked {
    explicit AllAreLocked(BiasedLock&) {}
  };
  return at_buffer<AllAreLocked>(data, call, [](Lane&, Buffer& buffer) { return &buffer; });
}

std::vector<Buffer*> UnifiedAllocator::find_in_use(Buffers buffers, const char* call) const {
  std::vector<Buffer*> found;
  for (const void* data : buffers) found.push_back(find_in_use(data, call));
  return found;
}

void UnifiedAllocator::refuse_pointer(const void* data, const char* call, bool known) const {
  raise<InvalidPointer>(
      "{}({}): {} on {}; pass the first byte of a buffer that is in use", call, data,
      known ? "this buffer was freed already" : "no buffer of the unified allocator starts there",
      to_string(device_));
}

void UnifiedAllocator::deallocate(void* data) {
  if (data == nullptr) return;
  raw_table().forget(data);
  std::uint64_t requested = 0;
  std::uint32_t stream = 0;
  const bool done = at_buffer<BiasedGuard>(data, "deallocate", [&](Lane& lane, Buffer& buffer) {
    requested = buffer.requested_bytes;
    stream = lane.stream;
    return put_back_fast(lane, &buffer);
  });
  if (!done) return free_slowly(data);
  report(MemoryEvent::kFreed, data, requested, {device_, stream});
}

BufferInfo UnifiedAllocator::describe(const void* data) const {
  bool is_used_elsewhere = false;
  BufferInfo info = at_buffer<BiasedGuard>(data, "describe", [&](Lane&, Buffer& buffer) {
    BufferInfo seen;
    seen.requested_bytes = buffer.requested_bytes;
    seen.size_bytes = buffer.size_bytes();
    seen.id = buffer.id;
    seen.storage = buffer.heap->pool->storage();
    seen.offset_bytes = buffer.place->offset - buffer.heap->base_offset;
    if (const auto* host = static_cast<const std::byte*>(buffer.heap->segment.host);
        host != nullptr && seen.storage == Storage::kShared)
      seen.host = host + seen.offset_bytes;
    is_used_elsewhere = buffer.uses != nullptr;
    return seen;
  });
  if (!is_used_elsewhere) return info;
  const AllLanesLock all(*this);
  const Buffer* buffer = find_in_use(data, "describe");
  for (const BufferUse* use = buffer->uses; use != nullptr; use = use->next)
    if (use->open || !completions_.is_complete(use->point)) ++info.uses;
  return info;
}

void UnifiedAllocator::set_buffer_shape(const void* data, std::span<const std::int64_t> shape) {
  at_buffer<BiasedGuard>(data, "set_buffer_shape", [&](Lane&, Buffer& buffer) {
    if (buffer.shape == nullptr) buffer.shape = new std::vector<std::int64_t>;
    buffer.shape->assign(shape.begin(), shape.end());
    return true;
  });
}

std::span<const std::int64_t> UnifiedAllocator::buffer_shape(const void* data) const {
  return at_buffer<BiasedGuard>(data, "buffer_shape", [](Lane&, const Buffer& buffer) {
    return buffer.shape != nullptr ? std::span<const std::int64_t>(*buffer.shape)
                                   : std::span<const std::int64_t>();
  });
}

// --- Events.

void UnifiedAllocator::record_stream(const DataPtr& data, Stream stream) {
  check_stream(stream, "record_stream");
  if (data == nullptr) return;
  const AllLanesLock all(*this);
  Buffer* buffer = find_in_use(data.get(), "record_stream");
  if (buffer->stream == stream.id) return;
  BufferPool& pool = *buffer->heap->pool;
  pool.lane().records.expect_pending(buffer, pool.pending());
  pool.lane().records.add_use(buffer, completions_.ticket(stream.id), true);
}

bool UnifiedAllocator::record_events(Buffers buffers) {
  const std::uint32_t stream = current_stream(device_).id;
  const AllLanesLock all(*this);
  const std::vector<Buffer*> found = find_in_use(buffers, "record_events");
  if (found.empty()) return false;
  const Ticket point = completions_.ticket(stream);
  completions_.of(stream).record();
  for (Buffer* buffer : found) {
    BufferPool& pool = *buffer->heap->pool;
    pool.lane().records.expect_pending(buffer, pool.pending());
    pool.lane().records.add_use(buffer, point, false);
  }
  return true;
}

bool UnifiedAllocator::wait_for_events(Buffers buffers) {
  const AllLanesLock all(*this);
  bool recorded = false;
  for (const Buffer* buffer : find_in_use(buffers, "wait_for_events")) {
    completions_.wait(buffer->freed);
    for (const BufferUse* use = buffer->uses; use != nullptr; use = use->next) {
      completions_.wait(use->point);
      recorded = true;
    }
  }
  return recorded;
}

// --- Figures.

std::uint64_t UnifiedAllocator::reserved_bytes() const {
  const auto asking = mutex_.ask();
  return supply_.reserved_bytes();
}

AllocatorStats UnifiedAllocator::stats() const {
  const AllLanesLock all(*this, mutex_.ask());
  return totals();
}

// With all lanes locked.
AllocatorStats UnifiedAllocator::totals() const {
  AllocatorStats out = stats_;
  lanes_.for_each([&](Lane& lane) { lane.counters.add_share(out); });
  peaks_.set_peaks(out);
  return out;
}

void UnifiedAllocator::reset_peak_stats() {
  const AllLanesLock all(*this, mutex_.ask());
  reset_peaks(stats_);
  lanes_.for_each([](Lane& lane) { lane.counters.reset_peaks(); });
  peaks_.reset_peaks();
}

std::uint64_t UnifiedAllocator::largest_free_bytes() const {
  const AllLanesLock all(*this, mutex_.ask());
  std::uint64_t largest = 0;
  for_each_pool([&](const BufferPool& pool) {
    largest = std::max(largest, pool.largest_free_bytes());
  });
  return largest;
}

std::vector<SegmentInfo> UnifiedAllocator::snapshot() const {
  const AllLanesLock all(*this, mutex_.ask());
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
  const std::uint64_t kind = Lane::pool_index(pool.storage(), pool.size_class());
  return kind << 60 | buffer->place->offset;
}

void UnifiedAllocator::check_invariants() const {
  const AllLanesLock all(*this);
  std::uint64_t active = 0, allocated = 0, reserved = 0;
  for_each_pool([&](const BufferPool& pool) {
    const BufferPool::Found found = pool.check_invariants(supply_.heaps());
    active += found.active_bytes;
    allocated += found.in_use_bytes;
  });
  for (const unified::BufferHeap* heap : supply_.heaps()) reserved += heap->segment.size_bytes;
  const AllocatorStats counted = totals();
  const auto current = [](const PoolStats& stats) {
    return static_cast<std::uint64_t>(stats[0].current);
  };
  TENON_CHECK(reserved == supply_.reserved_bytes(), "heaps hold {} bytes, counted {}", reserved,
              supply_.reserved_bytes());
  TENON_CHECK(allocated == current(counted.allocated_bytes), "{} bytes in use, counted {}",
              allocated, current(counted.allocated_bytes));
  TENON_CHECK(active == current(counted.active_bytes), "{} bytes active, counted {}", active,
              current(counted.active_bytes));
}

}  // namespace tenon
