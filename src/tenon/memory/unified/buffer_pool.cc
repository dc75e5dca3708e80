#include "tenon/memory/unified/buffer_pool.h"

#include <algorithm>

#include "tenon/base/align.h"
#include "tenon/base/check.h"
#include "tenon/memory/unified/heap_supply.h"
#include "tenon/memory/unified/lane.h"

namespace tenon::unified {

BufferPool::BufferPool(Lane& lane, Storage storage, SizeClass size_class)
    : lane_(lane),
      counts_(size_class == SizeClass::kLarge ? lane.large : lane.small),
      storage_(storage),
      size_class_(size_class) {}

std::uint32_t BufferPool::stream() const { return lane_.stream; }

inline void BufferPool::count_cached(int sign, const Buffer* buffer) {
  lane_.counters.set_split(counts_, counts_.split.current + sign,
                           counts_.split_bytes.current +
                               sign * static_cast<std::int64_t>(buffer->size_bytes()));
}

Buffer* BufferPool::take(std::uint64_t size_bytes, std::uint64_t most_bytes) {
  Buffer* buffer = cached_.take(size_bytes, most_bytes);
  if (buffer != nullptr) count_cached(-1, buffer);
  return buffer;
}

Buffer* BufferPool::place(std::uint64_t size_bytes, std::uint64_t alignment) {
  Block* place = places_.place(size_bytes, alignment, alignment);
  if (place == nullptr) return nullptr;
  try {
    Buffer* buffer = lane_.records.create(place, static_cast<BufferHeap*>(place->owner));
    buffer->freed = merged_;
    try {
      cached_.join(buffer);
    } catch (...) {
      lane_.records.destroy(buffer);
      throw;
    }
    return buffer;
  } catch (...) {
    places_.release(place);
    throw;
  }
}

void BufferPool::cache(Buffer* buffer) {
  buffer->state = Buffer::State::kCached;
  cached_.add(buffer);
  count_cached(1, buffer);
}

void BufferPool::merge_cached() {
  cached_.drain([&](Buffer* buffer) {
    count_cached(-1, buffer);
    merged_ = {stream(), std::max(merged_.number, buffer->freed.number)};
    places_.release(buffer->place);
    lane_.records.destroy(buffer);  // it has left its group
  });
}

void BufferPool::add_heap(BufferHeap* heap) {
  heap->pool = this;
  heap->base_offset = end_offset_;
  heap->first = places_.add_extent(end_offset_, heap->segment.size_bytes);
  heap->first->owner = heap;
  end_offset_ += align_up(heap->segment.size_bytes, kHeapRoundingBytes);
}

void BufferPool::remove_heap(BufferHeap* heap) {
  TENON_CHECK(heap->buffers_out == 0, "{} buffers of the heap are out", heap->buffers_out);
  for (Block* block = heap->first; block != nullptr; block = block->next) {
    if (block->state != Block::State::kUsed) continue;
    Buffer* buffer = static_cast<Buffer*>(block->context);
    cached_.remove(buffer);
    cached_.leave(buffer);
    count_cached(-1, buffer);
    lane_.records.destroy(buffer);
    block = places_.release(block);
  }
  places_.remove_extent(heap->first);
}

std::uint64_t BufferPool::largest_free_bytes() const {
  return std::max(places_.largest_free(), cached_.largest_bytes());
}

auto BufferPool::check_invariants(const std::vector<BufferHeap*>& heaps) const -> Found {
  places_.check_invariants();
  cached_.check_invariants();
  Found found;
  std::uint64_t cached_bytes = 0, cached_buffers = 0, pending_buffers = 0;
  for (const BufferHeap* heap : heaps) {
    if (heap->pool != this) continue;
    TENON_CHECK(heap->first->prev == nullptr, "a heap's first block has a lower neighbour (1)");
    std::uint64_t out = 0;
    BestFitHeap::for_each_in_extent(heap->first, [&](Block* block) {
      if (block->state != Block::State::kUsed) return;
      const Buffer* buffer = static_cast<const Buffer*>(block->context);
      TENON_CHECK(buffer != nullptr && buffer->place == block && buffer->heap == heap,
                  "a used block at {} has no buffer of its own (1)", block->offset);
      TENON_CHECK(lane_.records.find(buffer->data) == buffer,
                  "buffer {} is not found by address (1)", buffer->id);
      if (buffer->state == Buffer::State::kCached) {
        cached_bytes += block->size;
        ++cached_buffers;
        return;
      }
      ++out;
      found.active_bytes += block->size;
      if (buffer->state == Buffer::State::kInUse)
        found.in_use_bytes += block->size;
      else
        ++pending_buffers;
    });
    TENON_CHECK(out == heap->buffers_out, "{} buffers are out, counted {} (3)", out,
                heap->buffers_out);
  }
  TENON_CHECK(cached_bytes == cached_.bytes() && cached_buffers == cached_.count(),
              "{} cached bytes in {} buffers, counted {} in {} (2)", cached_bytes, cached_buffers,
              cached_.bytes(), cached_.count());
  TENON_CHECK(pending_buffers == pending_.size(), "{} buffers pending, listed {}", pending_buffers,
              pending_.size());
  return found;
}

}  // namespace tenon::unified
