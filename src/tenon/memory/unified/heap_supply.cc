#include "tenon/memory/unified/heap_supply.h"

#include <algorithm>
#include <memory>

#include "tenon/base/error.h"
#include "tenon/base/reserve.h"
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
  reserve_more(released_);
  const std::optional<Segment> segment = backend_.allocate_segment(size_bytes, kind);
  if (!segment) return false;
  heap->segment = *segment;
  try {
    pool.add_heap(heap.get());
  } catch (...) {
    ignore_refusal([&] { backend_.free_segment(*segment); });
    throw;
  }
  pool.lane().idle.add(heap.get());
  heaps_.push_back(heap.release());
  released_.push_back({segment->base, segment->size_bytes, pool.stream(), true});
  reserved_bytes_ += segment->size_bytes;
  count_segment(stats_, stat_pool(pool), +1);
  count_reserved(stats_, stat_pool(pool), static_cast<std::int64_t>(segment->size_bytes));
  return true;
}

std::uint64_t HeapSupply::reserved_bytes(const BufferPool& pool) const {
  std::uint64_t bytes = 0;
  for (const BufferHeap* heap : heaps_)
    if (heap->pool == &pool) bytes += heap->segment.size_bytes;
  return bytes;
}

void HeapSupply::release(BufferHeap* heap) {
  reserve_more(released_);
  backend_.free_segment(heap->segment);
  BufferPool& pool = *heap->pool;
  const std::uint64_t size_bytes = heap->segment.size_bytes;
  pool.remove_heap(heap);
  pool.lane().idle.remove(heap);
  heaps_.erase(std::find(heaps_.begin(), heaps_.end(), heap));
  reserved_bytes_ -= size_bytes;
  count_segment(stats_, stat_pool(pool), -1);
  count_reserved(stats_, stat_pool(pool), -static_cast<std::int64_t>(size_bytes));
  released_.push_back({heap->segment.base, size_bytes, pool.stream(), false});
  delete heap;
}

}  // namespace tenon::unified
