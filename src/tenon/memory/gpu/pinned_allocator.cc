#include "tenon/memory/gpu/pinned_allocator.h"

#include "tenon/base/align.h"

namespace tenon {
namespace {

constexpr std::uint64_t kPage = 4 * kKiB;

}  // namespace

PinnedAllocator::~PinnedAllocator() {
  idle_cache_.end();
  ignore_refusal([&] { finish_pending_frees(); });
}

std::unique_ptr<FrontHeap> PinnedAllocator::make_heap(Stream stream) {
  return std::make_unique<BlockHeap>(*this, stream, SizeRules{.has_one_pool = true},
                                     PendingFrees::Events::kWhenAsked);
}

DataPtr PinnedAllocator::allocate_on(std::size_t size_bytes, Stream stream) {
  check_request(size_bytes, stream);
  DataPtr data = StreamOrderedAllocator::allocate_on(size_bytes, {device_, 0});
  record_stream(data, stream);
  return data;
}

void PinnedAllocator::record_stream(const DataPtr& data, Stream stream) {
  if (data == nullptr) return;
  check_stream(stream, "record_stream");
  record_use(StreamFront::heap_of(data, "record_stream"), data, stream);
}

// Before the heap is asked again: what the device is done with.
bool PinnedAllocator::may_grow(FrontHeap& heap, std::size_t) {
  const BiasedGuard lock(heap.lock);
  heap.process_pending(false);
  return true;
}

bool PinnedAllocator::grow_pool(BlockHeap& heap, Pool, std::uint64_t rounded) {
  const std::uint64_t size = rounded <= kSmallSize ? kSmallSegment : align_up(rounded, kPage);
  if (add_segment(heap, Pool::kLarge, size)) return true;
  ++device_stats_.num_alloc_retries;
  finish_pending_frees();
  {
    const BiasedGuard lock(heap.lock);
    if (heap.heap(Pool::kLarge).find(rounded) != nullptr) return true;
  }
  release_free_segments();
  return add_segment(heap, Pool::kLarge, size);
}

}  // namespace tenon
