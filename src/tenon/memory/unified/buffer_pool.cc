#include "tenon/memory/unified/buffer_pool.h"

#include <algorithm>

#include "tenon/base/align.h"
#include "tenon/base/check.h"
#include "tenon/memory/unified/heap_sizes.h"

namespace tenon::unified {

Buffer* BufferPool::take(std::uint64_t size_bytes, std::uint64_t most_bytes) {
  Block* node = cached_.find(size_bytes);
  if (node == nullptr || node->size > most_bytes) return nullptr;
  Buffer* buffer = static_cast<Buffer*>(node->owner);
  uncache(buffer);
  return buffer;
}

Buffer* BufferPool::place(std::uint64_t size_bytes, std::uint64_t alignment) {
  Block* place = places_.place(size_bytes, alignment, alignment);
  if (place == nullptr) return nullptr;
  Buffer* buffer = records_.create(place, static_cast<BufferHeap*>(place->owner));
  buffer->freed = merged_;
  return buffer;
}

void BufferPool::cache(Buffer* buffer) {
  buffer->state = Buffer::State::kCached;
  buffer->node.size = buffer->size_bytes();
  cached_.insert(&buffer->node);
  cached_bytes_ += buffer->size_bytes();
  ++cached_buffers_;
  count(&AllocatorStats::inactive_split, &AllocatorStats::inactive_split_bytes, 1,
        buffer->size_bytes());
}

void BufferPool::uncache(Buffer* buffer) {
  cached_.erase(&buffer->node);
  cached_bytes_ -= buffer->size_bytes();
  --cached_buffers_;
  count(&AllocatorStats::inactive_split, &AllocatorStats::inactive_split_bytes, -1,
        buffer->size_bytes());
}

void BufferPool::merge_cached() {
  std::vector<Buffer*> all;
  all.reserve(cached_buffers_);
  cached_.for_each([&](Block* node) { all.push_back(static_cast<Buffer*>(node->owner)); });
  for (Buffer* buffer : all) {
    uncache(buffer);
    merged_ = {stream_, std::max(merged_.tick, buffer->freed.tick)};
    places_.release(buffer->place);
    records_.destroy(buffer);
  }
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
    uncache(buffer);
    records_.destroy(buffer);
    block = places_.release(block);
  }
  places_.remove_extent(heap->first);
}

std::uint64_t BufferPool::largest_free_bytes() const {
  std::uint64_t largest = places_.largest_free();
  if (const Block* node = cached_.largest()) largest = std::max(largest, node->size);
  return largest;
}

void BufferPool::check_invariants(const std::vector<BufferHeap*>& heaps) const {
  places_.check_invariants();
  cached_.check_invariants();
  std::uint64_t cached_bytes = 0;
  std::uint64_t cached_buffers = 0;
  std::uint64_t pending_buffers = 0;
  for (const BufferHeap* heap : heaps) {
    if (heap->pool != this) continue;
    TENON_CHECK(heap->first->prev == nullptr, "a heap's first block has a lower neighbour (1)");
    std::uint64_t out = 0;
    BestFitHeap::for_each_in_extent(heap->first, [&](Block* block) {
      if (block->state != Block::State::kUsed) return;
      const Buffer* buffer = static_cast<const Buffer*>(block->context);
      TENON_CHECK(buffer != nullptr && buffer->place == block && buffer->heap == heap,
                  "a used block at {} has no buffer of its own (1)", block->offset);
      TENON_CHECK(records_.find(buffer->data) == buffer, "buffer {} is not found by address (1)",
                  buffer->id);
      if (buffer->state == Buffer::State::kCached) {
        cached_bytes += block->size;
        ++cached_buffers;
        return;
      }
      ++out;
      if (buffer->state == Buffer::State::kPending) ++pending_buffers;
    });
    TENON_CHECK(out == heap->buffers_out, "{} buffers are out, counted {} (3)", out,
                heap->buffers_out);
  }
  TENON_CHECK(cached_bytes == cached_bytes_ && cached_buffers == cached_buffers_,
              "{} cached bytes in {} buffers, counted {} in {} (2)", cached_bytes, cached_buffers,
              cached_bytes_, cached_buffers_);
  TENON_CHECK(pending_buffers == pending_.size(), "{} buffers pending, listed {}", pending_buffers,
              pending_.size());
}

}  // namespace tenon::unified
