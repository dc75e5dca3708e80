#include "tenon/memory/front/segment_front.h"

#include "tenon/base/check.h"

namespace tenon {

bool SegmentFront::add_segment(ExtentHeap& heap, Pool pool, std::uint64_t size_bytes) {
  if (exceeds_limit(size_bytes)) return false;
  const std::optional<Segment> segment = make_segment(size_bytes);
  if (!segment) return false;
  try {
    const BiasedGuard lock(heap.lock);
    heap.add_extent(*segment, size_bytes, pool);
  } catch (...) {
    ignore_refusal([&] { free_segment(*segment); });
    throw;
  }
  add_reserved(pool, static_cast<std::int64_t>(segment->size_bytes));
  count_segment(pool, +1);
  if (segment->size_bytes >= oversize_bytes_) device_stats_.oversize_segments.increase(1);
  note(MemoryEvent::kMapped, segment->base, segment->size_bytes, heap.stream());
  return true;
}

bool SegmentFront::release_segment(ExtentHeap& heap, Extent& extent) {
  {
    const BiasedGuard lock(heap.lock);
    if (!heap.withdraw(extent)) return false;
  }
  const Segment segment = extent.segment;
  const Pool pool = extent.pool;
  try {
    free_segment(segment);
  } catch (...) {
    const BiasedGuard lock(heap.lock);
    heap.reinstate(extent);
    throw;
  }
  {
    const BiasedGuard lock(heap.lock);
    heap.forget(extent);
  }
  add_reserved(pool, -static_cast<std::int64_t>(segment.size_bytes));
  count_segment(pool, -1);
  if (segment.size_bytes >= oversize_bytes_) device_stats_.oversize_segments.decrease(1);
  note(MemoryEvent::kReleased, segment.base, segment.size_bytes, heap.stream());
  return true;
}

bool SegmentFront::release_free_segments(ExtentHeap& heap) {
  bool any = false;
  for (std::size_t i = heap.extents().size(); i-- > 0;)
    any |= release_segment(heap, *heap.extents()[i]);
  return any;
}

bool SegmentFront::release_free_segments() {
  bool any = false;
  for_each_heap<ExtentHeap>([&](ExtentHeap& heap) {
    {
      const BiasedGuard lock(heap.lock);
      heap.release_remote_frees();
    }
    any |= release_free_segments(heap);
  });
  return any;
}

void SegmentFront::free_all_segments() {
  for_each_heap<ExtentHeap>([&](ExtentHeap& heap) {
    while (!heap.extents().empty()) {
      Extent& extent = *heap.extents().back();
      if (!extent.growable) ignore_refusal([&] { free_segment(extent.segment); });
      heap.forget(extent);
    }
  });
}

void SegmentFront::check_invariants() const {
  StreamFront::check_invariants();
  const std::lock_guard growth(growth_mutex_);
  std::int64_t reserved = 0, extents = 0;
  bool has_pages = false;
  for_each_heap<ExtentHeap>([&](const ExtentHeap& heap) {
    for (const auto& extent : heap.extents()) {
      ++extents;
      reserved += static_cast<std::int64_t>(extent->segment.size_bytes);
      has_pages |= extent->growable;
    }
  });
  const AllocatorStats& counted = device_stats_;
  TENON_CHECK(extents == counted.segment[0].current &&
                  (has_pages || reserved == counted.reserved_bytes[0].current),
              "{} segments of {} bytes held, counted {} of {}", extents, reserved,
              counted.segment[0].current, counted.reserved_bytes[0].current);
}

}  // namespace tenon
