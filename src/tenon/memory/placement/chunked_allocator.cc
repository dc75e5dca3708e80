#include "tenon/memory/placement/chunked_allocator.h"

#include <mutex>
#include <optional>

#include "tenon/base/check.h"

namespace tenon {

ChunkedAllocator::~ChunkedAllocator() {
  for_each_heap<ChunkHeap>([&](ChunkHeap& heap) {
    for (const auto& chunk : heap.chunks())
      ignore_refusal([&] { backend_.free_segment(chunk->segment); });
  });
}

bool ChunkedAllocator::may_grow(FrontHeap& of_stream, std::size_t size_bytes) {
  auto& heap = static_cast<ChunkHeap&>(of_stream);
  const BiasedGuard lock(heap.lock);
  return heap.chunk_to_borrow() != nullptr || heap.wanted_bytes(size_bytes, 0) != 0;
}

bool ChunkedAllocator::grow(FrontHeap& of_stream, std::size_t size_bytes) {
  auto& heap = static_cast<ChunkHeap&>(of_stream);
  if (heap.replaces_free_chunks()) release_free_chunks(heap);
  for (bool retried = false;; retried = true) {
    for (int choice = 0;; ++choice) {
      std::uint64_t wanted = 0;
      {
        const BiasedGuard lock(heap.lock);
        if (heap.borrow_chunk()) return true;
        wanted = heap.wanted_bytes(size_bytes, choice);
      }
      if (wanted == 0 && choice == 0) return false;
      if (wanted == 0) break;
      if (add_chunk(heap, wanted)) return true;
    }
    if (!retried) ++device_stats_.num_alloc_retries;
    if (retried || !release_cached()) {
      const BiasedGuard lock(heap.lock);
      heap.note_refused();
      return false;
    }
  }
}

bool ChunkedAllocator::add_chunk(ChunkHeap& heap, std::uint64_t size_bytes) {
  if (exceeds_limit(size_bytes)) return false;
  const std::optional<Segment> segment = backend_.allocate_segment(size_bytes);
  if (!segment) return false;
  {
    const BiasedGuard lock(heap.lock);
    try {
      heap.add_chunk(*segment, size_bytes);
    } catch (...) {
      ignore_refusal([&] { backend_.free_segment(*segment); });
      throw;
    }
  }
  count_reserved(device_stats_, StatPool::kLarge, static_cast<std::int64_t>(segment->size_bytes));
  count_segment(device_stats_, StatPool::kLarge, +1);
  return true;
}

bool ChunkedAllocator::release_cached() {
  bool any = false;
  for_each_heap<ChunkHeap>([&](ChunkHeap& heap) {
    {
      const BiasedGuard lock(heap.lock);
      heap.release_remote_frees();
    }
    any |= release_free_chunks(heap);
  });
  return any;
}

bool ChunkedAllocator::release_free_chunks(ChunkHeap& heap) {
  bool any = false;
  for (std::size_t i = heap.chunks().size(); i-- > 0;)
    any |= release_if_free(heap, *heap.chunks()[i]);
  return any;
}

// One that the driver does not take stays surplus; the next release offers it again.
void ChunkedAllocator::release_surplus(FrontHeap& of_stream) {
  auto& heap = static_cast<ChunkHeap&>(of_stream);
  for (;;) {
    Chunk* chunk = nullptr;
    {
      const BiasedGuard lock(heap.lock);
      chunk = heap.surplus();
    }
    if (chunk == nullptr || !release_if_free(heap, *chunk)) return;
  }
}

// Gives the chunk back if nothing lives in it. A driver that refuses it leaves it where it was.
bool ChunkedAllocator::release_if_free(ChunkHeap& heap, Chunk& chunk) {
  {
    const BiasedGuard lock(heap.lock);
    if (!heap.withdraw(chunk)) return false;
  }
  const Segment segment = chunk.segment;
  try {
    backend_.free_segment(segment);
  } catch (...) {
    const BiasedGuard lock(heap.lock);
    heap.reinstate(chunk);
    throw;
  }
  {
    const BiasedGuard lock(heap.lock);
    heap.forget(chunk);
  }
  count_reserved(device_stats_, StatPool::kLarge, -static_cast<std::int64_t>(segment.size_bytes));
  count_segment(device_stats_, StatPool::kLarge, -1);
  note(MemoryEvent::kReleased, segment.base, segment.size_bytes, heap.stream());
  return true;
}

void ChunkedAllocator::check_invariants() const {
  StreamFront::check_invariants();
  const std::lock_guard growth(growth_mutex_);
  std::int64_t reserved = 0, chunks = 0;
  for_each_heap<ChunkHeap>([&](const ChunkHeap& heap) {
    for (const auto& chunk : heap.chunks()) {
      ++chunks;
      reserved += static_cast<std::int64_t>(chunk->segment.size_bytes);
    }
  });
  const AllocatorStats& counted = device_stats_;
  TENON_CHECK(reserved == counted.reserved_bytes[0].current &&
                  chunks == counted.segment[0].current,
              "{} chunks of {} bytes held, counted {} of {}", chunks, reserved,
              counted.segment[0].current, counted.reserved_bytes[0].current);
}

}  // namespace tenon
