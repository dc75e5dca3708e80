#include "tenon/memory/placement/chunked_allocator.h"

namespace tenon {

bool ChunkedAllocator::may_grow(FrontHeap& of_stream, std::size_t size_bytes) {
  auto& heap = static_cast<ChunkHeap&>(of_stream);
  const BiasedGuard lock(heap.lock);
  return heap.can_borrow() || heap.wanted_bytes(size_bytes, 0) != 0;
}

bool ChunkedAllocator::grow(FrontHeap& of_stream, std::size_t size_bytes) {
  auto& heap = static_cast<ChunkHeap&>(of_stream);
  if (heap.replaces_free_chunks()) release_free_segments(heap);
  for (bool retried = false;; retried = true) {
    for (int choice = 0;; ++choice) {
      std::uint64_t wanted = 0;
      {
        const BiasedGuard lock(heap.lock);
        if (heap.can_borrow()) {
          heap.borrow();
          return true;
        }
        wanted = heap.wanted_bytes(size_bytes, choice);
      }
      if (wanted == 0 && choice == 0) return false;
      if (wanted == 0) break;
      if (add_segment(heap, Pool::kLarge, wanted)) return true;
    }
    if (!retried) ++device_stats_.num_alloc_retries;
    if (retried || !release_free_segments()) {
      const BiasedGuard lock(heap.lock);
      heap.note_refused();
      return false;
    }
  }
}

// One that the driver does not take stays surplus; the next release offers it again.
void ChunkedAllocator::release_surplus(FrontHeap& of_stream) {
  auto& heap = static_cast<ChunkHeap&>(of_stream);
  for (;;) {
    Extent* chunk = nullptr;
    {
      const BiasedGuard lock(heap.lock);
      chunk = heap.surplus();
    }
    if (chunk == nullptr || !release_segment(heap, *chunk)) return;
  }
}

}  // namespace tenon
