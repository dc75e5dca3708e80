#include "tenon/memory/unified/heap_supply.h"

#include <algorithm>
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
  reserve_more(heaps_);
  reserve_more(changes_);
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
  count(MemoryEvent::kMapped, *heaps_.back());
  return true;
}

std::vector<BufferHeap*> HeapSupply::idle(const BufferPool* only) const {
  std::vector<BufferHeap*> idle;
  for (BufferHeap* heap : heaps_)
    if (heap->buffers_out == 0 && (only == nullptr || heap->pool == only)) idle.push_back(heap);
  std::sort(idle.begin(), idle.end(), [](const BufferHeap* a, const BufferHeap* b) {
    return a->idle_since < b->idle_since;
  });
  return idle;
}

void HeapSupply::release(BufferHeap* heap) {
  reserve_more(changes_);
  backend_.free_segment(heap->segment);
  heap->pool->remove_heap(heap);
  std::erase(heaps_, heap);
  count(MemoryEvent::kReleased, *heap);
  delete heap;
}

void HeapSupply::count(MemoryEvent event, const BufferHeap& heap) {
  const int sign = event == MemoryEvent::kMapped ? 1 : -1;
  const std::int64_t bytes = sign * static_cast<std::int64_t>(heap.segment.size_bytes);
  count_segment(stats_, stat_pool(*heap.pool), sign);
  count_reserved(stats_, stat_pool(*heap.pool), bytes);
  changes_.push_back({event, heap.segment.base, heap.segment.size_bytes,
                      {backend_.device(), heap.pool->stream()}, {}});
}

std::uint64_t HeapSupply::reserved_bytes(const BufferPool& pool) const {
  std::uint64_t bytes = 0;
  for (const BufferHeap* heap : heaps_)
    if (heap->pool == &pool) bytes += heap->segment.size_bytes;
  return bytes;
}

}  // namespace tenon::unified
