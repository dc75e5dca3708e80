// One stream's heap of the policies that only place: pool, buddy, arena and plan.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tenon/base/check.h"
#include "tenon/base/reserve.h"
#include "tenon/memory/device_allocator.h"
#include "tenon/memory/front/stream_heap.h"
#include "tenon/memory/placement/chunk.h"

namespace tenon {

// Where blocks lie in the chunks of one stream, and which chunks it wants. Handles are pointers to
// something with the policy's field `owner`: the chunk, inherited from its extent when blocks are
// cut.
template <typename P>
concept Placement = requires(P placement, const P& view, typename P::Handle handle,
                             typename P::Extent* extent, std::uint64_t number, Chunk* chunk) {
  { placement.place(number) } -> std::same_as<typename P::Handle>;  // null when nothing fits
  placement.release(handle);
  { P::size_of(handle) } -> std::same_as<std::uint64_t>;
  { P::offset_of(handle) } -> std::same_as<std::uint64_t>;  // among the stream's numbers
  { P::link_of(handle) } -> std::same_as<typename P::Handle&>;
  // Bytes of a new chunk for a request that found no room: the first (0), second, ... choice; 0
  // bytes when there is no further choice. `number` of bytes are in chunks already.
  { view.chunk_bytes(number, int{}, number) } -> std::same_as<std::uint64_t>;
  { placement.add_chunk(number, number, chunk) } -> std::same_as<typename P::Extent*>;
  { P::is_wholly_free(extent) } -> std::same_as<bool>;
  placement.remove_chunk(extent);
  placement.note_refused();  // the driver had none of the chunks
  { view.largest_free() } -> std::same_as<std::uint64_t>;
  view.check_invariants();
};

// A placement that can try the common case alone: null has no effect, and nothing is thrown.
template <typename P>
concept FastPlacement = requires(P placement, std::uint64_t number) {
  { placement.place_fast(number) } -> std::same_as<typename P::Handle>;
};

// A placement that may want its wholly free chunks to go back before it gets a larger one.
template <typename P>
concept ReplacingPlacement = requires(const P& view) {
  { view.replaces_free_chunks() } -> std::same_as<bool>;
};

// A placement that may also place in a chunk that another stream's heap has brought.
template <typename P>
concept BorrowingPlacement = requires(P placement, Chunk* chunk) {
  { placement.chunk_to_borrow() } -> std::same_as<Chunk*>;  // null: there is nothing to borrow
  { placement.add_chunk(0, 0, chunk, true) } -> std::same_as<typename P::Extent*>;
};

// A placement whose handles know their heap and address themselves, which saves a look at the
// chunk.
template <typename P>
concept DirectPlacement = requires(typename P::Handle handle) {
  { P::heap_of(handle) } -> std::same_as<StreamHeap*>;
  { P::address_of(handle) } -> std::same_as<void*>;
};

// The placement with the stream's chunks and counters, as the front uses it.
template <Placement P>
class ChunkHeap final : public StreamHeap {
 public:
  using Handle = typename P::Handle;
  using Extent = typename P::Extent;
  // A block is only ever reused on its own stream, unless the placement orders other streams.
  static constexpr bool kKnowsStreams =
      requires(P& p, Handle block, Stream stream) { p.record_use(block, stream); };

  ChunkHeap(DeviceAllocator& allocator, Stream stream, const typename P::Config& config)
      : StreamHeap(allocator, stream), placement(config, stream, *this) {}

  // --- For the front (StreamHeapOf).
  Handle place(std::size_t size_bytes, bool) {
    return counted(placement.place(size_bytes), size_bytes);
  }
  Handle place_fast(std::size_t size_bytes) {
    if constexpr (FastPlacement<P>)
      return counted(placement.place_fast(size_bytes), size_bytes);
    else
      return place(size_bytes, false);
  }
  void release(Handle block) {
    const std::uint64_t size = P::size_of(block);
    const std::uint64_t requested = requested_of(block);
    placement.release(block);
    counters.count_released(size, requested);
  }
  // Within the block, and beyond it where the placement extends blocks.
  Handle extend(Handle block, std::size_t size_bytes) {
    const std::uint64_t size = P::size_of(block);
    const std::uint64_t requested = requested_of(block);
    if (size_bytes > size) {
      if constexpr (requires { placement.extend(block, size_bytes); })
        block = placement.extend(block, size_bytes);
      else
        return nullptr;
      if (block == nullptr) return nullptr;
    }
    counters.count_released(size, requested);
    return counted(block, size_bytes);
  }
  bool release_fast(Handle block) {
    if constexpr (requires { placement.is_ordinary(block); }) {
      if (!placement.is_ordinary(block)) [[unlikely]] return false;
      counters.count_released(P::size_of(block), requested_of(block));
      placement.release_ordinary(block);
    } else {
      counters.count_released(P::size_of(block), requested_of(block));
      placement.release(block);
    }
    return true;
  }
  bool has_surplus() const {
    if constexpr (requires { placement.surplus(); }) return placement.surplus() != nullptr;
    return false;
  }
  static constexpr bool has_pending() { return false; }
  void process_pending(bool) {}
  void record_use(Handle block, Stream stream)
    requires kKnowsStreams
  {
    placement.record_use(block, stream);
  }
  static Chunk* chunk_of(Handle block) { return static_cast<Chunk*>(block->owner); }
  static ChunkHeap& heap_of(Handle block) {
    if constexpr (DirectPlacement<P>)
      return static_cast<ChunkHeap&>(*P::heap_of(block));
    else
      return static_cast<ChunkHeap&>(*chunk_of(block)->heap);
  }
  static void* address_of(Handle block) {
    if constexpr (DirectPlacement<P>)
      return P::address_of(block);
    else
      return reinterpret_cast<void*>(chunk_of(block)->address_of(P::offset_of(block)));
  }
  static std::uint64_t requested_of(Handle block) { return block->requested; }
  static std::uint64_t size_of(Handle block) { return P::size_of(block); }
  static Handle& link_of(Handle block) { return P::link_of(block); }
  static std::uint64_t layout_offset(Handle block) { return P::offset_of(block); }
  std::uint64_t largest_free() const { return placement.largest_free(); }
  [[gnu::cold]] void add_snapshot(std::vector<SegmentInfo>& out) const;
  [[gnu::cold]] void check_invariants() const;

  // --- Chunks. Only the holder of the growth mutex changes the list.
  // Takes a new chunk of at least `size_bytes`. Throws std::bad_alloc; then nothing has changed.
  [[gnu::cold]] void add_chunk(const Segment& segment, std::uint64_t size_bytes);
  // Takes the chunk out of the placement, if it is wholly free.
  bool withdraw(Chunk& chunk);
  // The driver would not take it back.
  void reinstate(Chunk& chunk);
  // Requires: withdrawn.
  void forget(Chunk& chunk);
  bool can_borrow_chunk() const {
    if constexpr (BorrowingPlacement<P>) return placement.chunk_to_borrow() != nullptr;
    return false;
  }
  // The heap's own record of a chunk that is another's, if there is one to borrow.
  bool borrow_chunk();
  const std::vector<std::unique_ptr<Chunk>>& chunks() const { return chunks_; }
  const Chunk* borrowed() const { return chunks_.empty() ? borrowed_.get() : nullptr; }
  std::uint64_t chunk_bytes() const { return chunk_bytes_; }
  void add_blocks(const Chunk& chunk, std::vector<BlockInfo>& out) const;

  P placement;

 private:
  Handle counted(Handle block, std::size_t size_bytes) {
    if (block == nullptr) [[unlikely]] return nullptr;
    block->requested = size_bytes;
    counters.count_placed(P::size_of(block), size_bytes);
    return block;
  }

  std::uint64_t offset_end_ = 0;  // where the next chunk's numbers begin
  std::uint64_t chunk_bytes_ = 0;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::unique_ptr<Chunk> borrowed_;
};

template <Placement P>
void ChunkHeap<P>::add_chunk(const Segment& segment, std::uint64_t size_bytes) {
  auto chunk = std::make_unique<Chunk>();
  chunk->heap = this;
  chunk->offset_base = offset_end_;
  chunk->segment = segment;
  chunk->size_bytes = size_bytes;
  chunk->place = chunks_.size();
  reserve_more(chunks_);
  chunk->extent = placement.add_chunk(chunk->offset_base, size_bytes, chunk.get());
  offset_end_ += size_bytes;
  chunk_bytes_ += size_bytes;
  chunks_.push_back(std::move(chunk));
}

template <Placement P>
bool ChunkHeap<P>::withdraw(Chunk& chunk) {
  auto* extent = static_cast<Extent*>(chunk.extent);
  if (!P::is_wholly_free(extent)) return false;
  placement.remove_chunk(extent);
  return true;
}

template <Placement P>
void ChunkHeap<P>::reinstate(Chunk& chunk) {
  chunk.extent = placement.add_chunk(chunk.offset_base, chunk.size_bytes, &chunk);
}

template <Placement P>
void ChunkHeap<P>::forget(Chunk& chunk) {
  chunk_bytes_ -= chunk.size_bytes;
  const std::size_t place = chunk.place;
  std::swap(chunks_[place], chunks_.back());
  chunks_[place]->place = place;
  chunks_.pop_back();
}

template <Placement P>
bool ChunkHeap<P>::borrow_chunk() {
  if constexpr (BorrowingPlacement<P>) {
    const Chunk* lent = placement.chunk_to_borrow();
    if (lent == nullptr) return false;
    auto chunk = std::make_unique<Chunk>(*lent);
    chunk->heap = this;
    chunk->extent = placement.add_chunk(chunk->offset_base, chunk->size_bytes, chunk.get(), true);
    borrowed_ = std::move(chunk);
    return true;
  }
  return false;
}

template <Placement P>
void ChunkHeap<P>::add_blocks(const Chunk& chunk, std::vector<BlockInfo>& out) const {
  placement.for_each_block(static_cast<Extent*>(chunk.extent), [&](Handle block, bool used) {
    out.push_back({reinterpret_cast<std::uintptr_t>(address_of(block)), P::size_of(block),
                   used ? requested_of(block) : 0,
                   used ? BlockInfo::State::kActive : BlockInfo::State::kInactive});
  });
}

template <Placement P>
void ChunkHeap<P>::add_snapshot(std::vector<SegmentInfo>& out) const {
  for (const auto& chunk : chunks_) {
    SegmentInfo& segment = out.emplace_back();
    segment.address = reinterpret_cast<std::uintptr_t>(chunk->segment.base);
    segment.size_bytes = chunk->segment.size_bytes;
    segment.stream = stream();
    add_blocks(*chunk, segment.blocks);
  }
}

template <Placement P>
void ChunkHeap<P>::check_invariants() const {
  placement.check_invariants();
  std::int64_t blocks = 0, bytes = 0, requested = 0;
  const auto count_blocks = [&](const Chunk& chunk) {
    placement.for_each_block(static_cast<Extent*>(chunk.extent), [&](Handle block, bool used) {
      TENON_CHECK(chunk_of(block) == &chunk, "a block at {} does not name its chunk",
                  P::offset_of(block));
      if (!used) return;
      ++blocks;
      bytes += static_cast<std::int64_t>(P::size_of(block));
      requested += static_cast<std::int64_t>(requested_of(block));
    });
  };
  std::uint64_t held = 0;
  for (const auto& chunk : chunks_) {
    count_blocks(*chunk);
    held += chunk->size_bytes;
  }
  if (borrowed() != nullptr) count_blocks(*borrowed());
  TENON_CHECK(held == chunk_bytes_, "chunks of {} bytes, counted {}", held, chunk_bytes_);
  TENON_CHECK(blocks == counters.blocks() && bytes == counters.bytes() &&
                  requested == counters.requested_bytes(),
              "{} blocks of {} bytes ({} requested) in chunks of {}, counted {} of {} ({})", blocks,
              bytes, requested, to_string(stream()), counters.blocks(), counters.bytes(),
              counters.requested_bytes());
}

}  // namespace tenon
