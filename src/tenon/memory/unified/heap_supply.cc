#include "tenon/memory/unified/heap_supply.h"

#include <memory>

#include "tenon/base/error.h"
#include "tenon/memory/unified/lane.h"

namespace tenon::unified {

HeapSupply::~HeapSupply() {
  for (BufferHeap* heap : heaps_) {
    ignore_refusal([&] { backend_.free_segment(heap->segment); });
    delete heap;
  }
}

bool HeapSupply::grow(BufferPool& pool, std::uint64_t size_bytes) {
  const MemoryKind kind = pool.storage() == Storage::kShared ? shared_memory_ : MemoryKind::kDevice;
  auto heap = std::make_unique<BufferHeap>();
  HeapChanges news(1);
  reserve_more(heaps_);
  const std::optional<Segment> segment = backend_.allocate_segment(size_bytes, kind);
  if (!segment) return false;
  heap->segment = *segment;
  try {
    pool.add_heap(heap.get());
  } catch (...) {
    ignore_refusal([&] { backend_.free_segment(*segment); });
    throw;
  }
  pool.lane().note_idle(heap.get());
  heaps_.push_back(heap.release());
  count(MemoryEvent::kMapped, *heaps_.back(), news);
  return true;
}

BufferHeap* HeapSupply::oldest_idle(const BufferPool* only) const {
  BufferHeap* oldest = nullptr;
  for (BufferHeap* heap : heaps_) {
    if (heap->buffers_out != 0 || (only != nullptr && heap->pool != only)) continue;
    if (oldest == nullptr || heap->idle_since < oldest->idle_since) oldest = heap;
  }
  return oldest;
}

void HeapSupply::release(BufferHeap* heap) {
  backend_.free_segment(heap->segment);
  heap->pool->remove_heap(heap);
  std::erase(heaps_, heap);
  count(MemoryEvent::kReleased, *heap, heap->farewell);
  delete heap;
}

// `place`: one, which goes to the changes.
void HeapSupply::count(MemoryEvent event, const BufferHeap& heap, HeapChanges& place) {
  const int sign = event == MemoryEvent::kMapped ? 1 : -1;
  const std::int64_t bytes = sign * static_cast<std::int64_t>(heap.segment.size_bytes);
  count_segment(stats_, stat_pool(*heap.pool), sign);
  count_reserved(stats_, stat_pool(*heap.pool), bytes);
  place.front() = {event, heap.segment.base, heap.segment.size_bytes,
                   {backend_.device(), heap.pool->stream()}, {}};
  changes_.splice(changes_.end(), place);
}

std::uint64_t HeapSupply::reserved_bytes(const BufferPool& pool) const {
  std::uint64_t bytes = 0;
  for (const BufferHeap* heap : heaps_)
    if (heap->pool == &pool) bytes += heap->segment.size_bytes;
  return bytes;
}

}  // namespace tenon::unified
