// The policies that only place, over chunks of driver memory.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "tenon/memory/front/stream_front.h"
#include "tenon/memory/placement/chunk_heap.h"

namespace tenon {

// Serves each stream from a placement of its own. A heap that has no room grows by a chunk from the
// driver. When the driver has none left, empty chunks go back to it and it is asked again. Then the
// fallback, if there is one, is asked for the block alone.
//
// Thread safety and failure: as StreamFront. Complexity: the placement's.
template <Placement P>
class ChunkedAllocator : public StreamFront<ChunkHeap<P>> {
 public:
  // The placement's.
  using Config = typename P::Config;

  std::size_t alignment() const override { return this->alignment_of_steps(kChunkStepBytes); }
  // Gives all memory back to the driver; blocks that still live must not be used any more.
  [[gnu::cold]] ~ChunkedAllocator() override;
  [[gnu::cold]] void check_invariants() const override;

 protected:
  // What the front keeps for each stream.
  using Heap = ChunkHeap<P>;
  using Front = StreamFront<Heap>;

  ChunkedAllocator(Backend& backend, Config config, std::uint64_t limit_bytes,
                   std::unique_ptr<DeviceAllocator>&& fallback = nullptr)
      : Front(backend, limit_bytes, std::move(fallback)), config_(std::move(config)) {}

  // As it was made with.
  const Config& config() const { return config_; }
  [[gnu::cold]] bool release_cached() override;
  std::string advice() const override {
    return "free what is no longer needed; other streams' free blocks are not shared";
  }
  // Gives the chunk back if nothing lives in it. Requires: growth_mutex_ held, the heap not locked.
  // A driver that refuses the chunk leaves it where it was.
  [[gnu::cold]] bool release_if_free(Heap& heap, Chunk& chunk);

 private:
  [[gnu::cold]] std::unique_ptr<Heap> make_heap(Stream stream) override {
    return std::make_unique<Heap>(*this, stream, config_);
  }
  bool may_grow(Heap& heap, std::size_t size_bytes) override {
    const BiasedGuard lock(heap.lock);
    return heap.can_borrow_chunk() ||
           heap.placement.chunk_bytes(size_bytes, 0, heap.chunk_bytes()) != 0;
  }
  [[gnu::cold]] bool grow(Heap& heap, std::size_t size_bytes) override;
  [[gnu::cold]] bool add_chunk(Heap& heap, std::uint64_t size_bytes);
  [[gnu::cold]] bool release_free_chunks(Heap& heap);

  const Config config_;
};

template <Placement P>
ChunkedAllocator<P>::~ChunkedAllocator() {
  this->for_each_heap([&](Heap& heap) {
    for (const auto& chunk : heap.chunks())
      ignore_refusal([&] { this->backend_.free_segment(chunk->segment); });
  });
}

template <Placement P>
bool ChunkedAllocator<P>::grow(Heap& heap, std::size_t size_bytes) {
  if constexpr (ReplacingPlacement<P>)
    if (heap.placement.replaces_free_chunks()) release_free_chunks(heap);
  for (bool retried = false;; retried = true) {
    for (int choice = 0;; ++choice) {
      std::uint64_t wanted = 0;
      {
        const BiasedGuard lock(heap.lock);
        if (heap.borrow_chunk()) return true;
        wanted = heap.placement.chunk_bytes(size_bytes, choice, heap.chunk_bytes());
      }
      if (wanted == 0 && choice == 0) return false;
      if (wanted == 0) break;
      if (add_chunk(heap, wanted)) return true;
    }
    if (!retried) ++this->device_stats_.num_alloc_retries;
    if (retried || !release_cached()) {
      const BiasedGuard lock(heap.lock);
      heap.placement.note_refused();
      return false;
    }
  }
}

template <Placement P>
bool ChunkedAllocator<P>::add_chunk(Heap& heap, std::uint64_t size_bytes) {
  if (this->exceeds_limit(size_bytes)) return false;
  const std::optional<Segment> segment = this->backend_.allocate_segment(size_bytes);
  if (!segment) return false;
  {
    const BiasedGuard lock(heap.lock);
    try {
      heap.add_chunk(*segment, size_bytes);
    } catch (...) {
      ignore_refusal([&] { this->backend_.free_segment(*segment); });
      throw;
    }
  }
  count_reserved(this->device_stats_, StatPool::kLarge,
                 static_cast<std::int64_t>(segment->size_bytes));
  count_segment(this->device_stats_, StatPool::kLarge, +1);
  return true;
}

template <Placement P>
bool ChunkedAllocator<P>::release_cached() {
  bool any = false;
  this->for_each_heap([&](Heap& heap) {
    {
      const BiasedGuard lock(heap.lock);
      Heap::drain_remote_frees(heap);
    }
    any |= release_free_chunks(heap);
  });
  return any;
}

template <Placement P>
bool ChunkedAllocator<P>::release_free_chunks(Heap& heap) {
  bool any = false;
  for (std::size_t i = heap.chunks().size(); i-- > 0;)
    any |= release_if_free(heap, *heap.chunks()[i]);
  return any;
}

template <Placement P>
bool ChunkedAllocator<P>::release_if_free(Heap& heap, Chunk& chunk) {
  {
    const BiasedGuard lock(heap.lock);
    if (!heap.withdraw(chunk)) return false;
  }
  const Segment segment = chunk.segment;
  try {
    this->backend_.free_segment(segment);
  } catch (...) {
    const BiasedGuard lock(heap.lock);
    heap.reinstate(chunk);
    throw;
  }
  {
    const BiasedGuard lock(heap.lock);
    heap.forget(chunk);
  }
  count_reserved(this->device_stats_, StatPool::kLarge,
                 -static_cast<std::int64_t>(segment.size_bytes));
  count_segment(this->device_stats_, StatPool::kLarge, -1);
  this->note(MemoryEvent::kReleased, segment.base, segment.size_bytes, heap.stream());
  return true;
}

template <Placement P>
void ChunkedAllocator<P>::check_invariants() const {
  Front::check_invariants();
  const std::lock_guard growth(this->growth_mutex_);
  std::int64_t reserved = 0, chunks = 0;
  this->for_each_heap([&](const Heap& heap) {
    for (const auto& chunk : heap.chunks()) {
      ++chunks;
      reserved += static_cast<std::int64_t>(chunk->segment.size_bytes);
    }
  });
  const AllocatorStats& counted = this->device_stats_;
  TENON_CHECK(reserved == counted.reserved_bytes[0].current &&
                  chunks == counted.segment[0].current,
              "{} chunks of {} bytes held, counted {} of {}", chunks, reserved,
              counted.segment[0].current, counted.reserved_bytes[0].current);
}

}  // namespace tenon
