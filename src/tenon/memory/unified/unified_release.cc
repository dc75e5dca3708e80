// How a unified allocator takes a freed buffer back.
#include <exception>
#include <utility>

#include "tenon/memory/unified/unified_allocator.h"

namespace tenon {

using unified::Buffer;
using unified::BufferHeap;
using unified::BufferPool;
using unified::BufferUse;
using unified::Lane;

// When nothing but its own stream used the buffer. Under the lane's lock. False: nothing happened.
bool UnifiedAllocator::put_back_fast(Lane& lane, Buffer* buffer) {
  if (buffer->state != Buffer::State::kInUse || buffer->uses != nullptr ||
      buffer->stream != lane.stream ||
      limits_.cache_limit() != unified::MemoryLimits::kNoLimit) [[unlikely]]
    return false;
  count_back(lane, buffer);
  buffer->freed = lane.completion.ticket();
  if (lane.completion.is_mark_due()) [[unlikely]] mark_for_others(lane);
  make_cached(*buffer->heap->pool, buffer);
  return true;
}

// An event for the thread's other streams, or for those that have no thread yet, if there are any.
void UnifiedAllocator::mark_for_others(Lane& lane) {
  const void* const user = lane.user.load(std::memory_order_relaxed);
  int of_other_threads = 0;
  lanes_.for_each([&](const Lane& other) {
    of_other_threads += &other != &lane && other.user.load(std::memory_order_relaxed) != user;
  });
  if (completions_.count() - of_other_threads > 1)
    lane.completion.try_mark();
  else
    lane.completion.put_off_mark();
}

void UnifiedAllocator::put_back(Buffer* buffer) {
  BufferPool& pool = *buffer->heap->pool;
  Lane& lane = pool.lane();
  count_back(lane, buffer);
  lane.records.settle_expected(buffer);
  const Ticket freed = completions_.ticket(buffer->stream);
  if (buffer->stream == pool.stream())
    buffer->freed = freed;
  else
    lane.records.add_use(buffer, freed, false);
  for (BufferUse* use = buffer->uses; use != nullptr; use = use->next)
    if (std::exchange(use->open, false)) use->point = completions_.ticket(use->point.stream);
  if (settle(buffer)) return make_cached(pool, buffer);
  buffer->state = Buffer::State::kPending;
  count_pending(pool, buffer, 1);
  pool.pending().push_back(buffer);
}

// The buffer is in use no more, and forgets its shape.
void UnifiedAllocator::count_back(Lane& lane, Buffer* buffer) {
  const BufferPool& pool = *buffer->heap->pool;
  lane.counters.count_release(pool.counts(), static_cast<std::int64_t>(buffer->size_bytes()));
  lane.counters.forget_requested(pool.counts(),
                                 static_cast<std::int64_t>(buffer->requested_bytes));
  delete std::exchange(buffer->shape, nullptr);
  lane.counters.publish_if_drifted();
}

// Another stream takes the buffer over. Throws std::bad_alloc; then the pool has it again.
void UnifiedAllocator::expect_pending(BufferPool& pool, Buffer* buffer) {
  try {
    pool.lane().records.expect_pending(buffer, pool.pending());
  } catch (...) {
    if (buffer->uses == nullptr) {
      pool.cache(buffer);
    } else {
      ++buffer->heap->buffers_out;
      count_pending(pool, buffer, 1);
      pool.pending().push_back(buffer);  // it was taken from there
    }
    throw;
  }
}

void UnifiedAllocator::count_pending(BufferPool& pool, const Buffer* buffer, int sign) {
  pool.lane().counters.count_pending(pool.counts(), sign,
                                     sign * static_cast<std::int64_t>(buffer->size_bytes()));
}

// A reuse of the buffer waits for no stream except the pool's own.
void UnifiedAllocator::make_cached(BufferPool& pool, Buffer* buffer) {
  pool.lane().came_back(buffer->heap);
  pool.cache(buffer);
}

// True when the pool's own stream may use the buffer without a wait.
bool UnifiedAllocator::settle(Buffer* buffer) {
  if (buffer->uses == nullptr) [[likely]] return true;
  const std::uint32_t home = buffer->heap->pool->stream();
  bool all_done = true;
  for (const BufferUse* use = buffer->uses; use != nullptr; use = use->next) {
    if (!completions_.is_ordered(use->point, home)) return false;
    all_done &= completions_.is_complete(use->point);
  }
  // What waits for the home stream from here on waits for these uses too.
  if (!all_done) buffer->freed = completions_.ticket(home);
  buffer->heap->pool->lane().records.drop_uses(buffer);
  return true;
}

// Caches the pending buffers whose uses have finished. Returns their bytes.
std::uint64_t UnifiedAllocator::settle_pending(BufferPool& pool) {
  if (pool.pending().empty()) [[likely]] return 0;
  for (const Buffer* buffer : pool.pending())
    for (const BufferUse* use = buffer->uses; use != nullptr; use = use->next)
      completions_.of(use->point.stream).try_mark();
  completions_.poll();
  std::uint64_t bytes = 0;
  std::erase_if(pool.pending(), [&](Buffer* buffer) {
    if (!settle(buffer)) return false;
    bytes += buffer->size_bytes();
    count_pending(pool, buffer, -1);
    make_cached(pool, buffer);
    return true;
  });
  return bytes;
}

void UnifiedAllocator::settle_everything() {
  bool any = false;
  for_each_pool([&](BufferPool& pool) { any |= !pool.pending().empty(); });
  if (!any) return;
  completions_.wait_for_all();
  ++stats_.num_sync_all_streams;
  for_each_pool([&](BufferPool& pool) { settle_pending(pool); });
}

void UnifiedAllocator::trim_to_cache_limit() noexcept {
  const std::uint64_t limit = limits_.cache_limit();
  if (limit == unified::MemoryLimits::kNoLimit) return;
  const std::uint64_t wired = limits_.wired_limit();
  std::uint64_t active = 0;
  lanes_.for_each([&](Lane& lane) {
    active += static_cast<std::uint64_t>(lane.counters.active_bytes());
  });
  try {
    if (supply_.reserved_bytes() - active <= limit) return;
    while (BufferHeap* const heap = supply_.oldest_idle()) {
      const std::uint64_t held = supply_.reserved_bytes();
      if (held - active <= limit || held - heap->segment.size_bytes < wired) break;
      supply_.release(heap);
    }
  } catch (const std::exception&) {
    // The heap stays idle; a request that needs memory tries again.
  }
}

}  // namespace tenon
