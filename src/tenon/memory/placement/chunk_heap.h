// One stream's heap of the policies that only place: pool, buddy, arena and plan.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tenon/memory/front/stream_front.h"
#include "tenon/memory/placement/chunk.h"

namespace tenon {

// The stream's chunks, and what growth asks of the placement over them.
class ChunkHeap : public FrontHeap {
 public:
  using FrontHeap::FrontHeap;

  // --- What the placement says. PlacementHeap, below, asks it.
  // Bytes of a new chunk for a request that found no room: the first (0), second, ... choice; 0
  // bytes when there is no further choice.
  virtual std::uint64_t wanted_bytes(std::uint64_t size_bytes, int choice) const = 0;
  // Whether wholly free chunks are to go back before a larger one comes.
  virtual bool replaces_free_chunks() const { return false; }
  // A chunk of another stream's heap to place in too; null: there is none.
  virtual Chunk* chunk_to_borrow() const { return nullptr; }
  // A wholly free chunk that is to go back at once; null: there is none.
  virtual Chunk* surplus() const { return nullptr; }
  virtual void note_refused() = 0;  // the driver had none of the chunks

  // --- Chunks. Only the holder of the growth mutex changes the list.
  // Takes a new chunk of at least `size_bytes`. Throws std::bad_alloc; then nothing has changed.
  void add_chunk(const Segment& segment, std::uint64_t size_bytes);
  // Takes the chunk out of the placement, if it is wholly free.
  virtual bool withdraw(Chunk& chunk) = 0;
  // The driver would not take it back.
  void reinstate(Chunk& chunk) { chunk.extent = add_extent(chunk, false); }
  // Requires: withdrawn.
  void forget(Chunk& chunk);
  // The heap's own record of a chunk that is another's, if there is one to borrow.
  bool borrow_chunk();
  const std::vector<std::unique_ptr<Chunk>>& chunks() const { return chunks_; }
  const Chunk* borrowed() const { return chunks_.empty() ? borrowed_.get() : nullptr; }
  std::uint64_t chunk_bytes() const { return chunk_bytes_; }
  void add_blocks(const Chunk& chunk, std::vector<BlockInfo>& out) const;

  bool has_surplus() const override { return surplus() != nullptr; }
  void add_snapshot(std::vector<SegmentInfo>& out) const override;
  void check_invariants() const override;

 protected:
  // visit(block, its chunk, whether it is in use)
  using Visit = std::function<void(void* block, const Chunk& chunk, bool used)>;
  // Gives the chunk's memory to the placement; returns the placement's name for it.
  virtual void* add_extent(Chunk& chunk, bool borrowed) = 0;
  virtual void for_each_block(const Chunk& chunk, const Visit& visit) const = 0;
  virtual void check_placement() const = 0;

 private:
  std::uint64_t offset_end_ = 0;  // where the next chunk's numbers begin
  std::uint64_t chunk_bytes_ = 0;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::unique_ptr<Chunk> borrowed_;
};

// Where blocks lie in the chunks of one stream, and which chunks it wants. Handles are pointers to
// something with the policy's field `owner`: the chunk, inherited from its extent when blocks are
// cut. What is a function of ChunkHeap too means the same; those that have a default there, and
// what PlacementHeap looks for by `requires`, may be left out.
template <typename P>
concept Placement = requires(P placement, const P& view, typename P::Handle handle,
                             typename P::Extent* extent, std::uint64_t number, Chunk* chunk) {
  { placement.place(number) } -> std::same_as<typename P::Handle>;  // null when nothing fits
  placement.release(handle);
  { P::size_of(handle) } -> std::same_as<std::uint64_t>;
  { P::offset_of(handle) } -> std::same_as<std::uint64_t>;  // among the stream's numbers
  { P::link_of(handle) } -> std::same_as<typename P::Handle&>;
  // As wanted_bytes; the last `number` of bytes are in chunks already.
  { view.chunk_bytes(number, int{}, number) } -> std::same_as<std::uint64_t>;
  // Of `number` bytes from `number` on, in this chunk; `true`: it is borrowed.
  { placement.add_chunk(number, number, chunk, true) } -> std::same_as<typename P::Extent*>;
  { P::is_wholly_free(extent) } -> std::same_as<bool>;
  placement.remove_chunk(extent);
  placement.note_refused();
  { view.largest_free() } -> std::same_as<std::uint64_t>;
  view.check_invariants();
};

// The heap of a placement.
template <Placement P>
class PlacementHeap final : public ChunkHeap {
 public:
  using Handle = typename P::Handle;

  PlacementHeap(DeviceAllocator& allocator, Stream stream, const typename P::Config& config)
      : ChunkHeap(allocator, stream), placement(config, stream, *this) {}

  // --- For the fast path (FastHeap).
  Handle place_fast(std::size_t size_bytes) {
    if constexpr (requires { placement.place_fast(size_bytes); })
      return counted(placement.place_fast(size_bytes), size_bytes);
    else
      return counted(placement.place(size_bytes), size_bytes);
  }
  bool release_fast(Handle block) {
    if constexpr (requires { placement.is_ordinary(block); }) {
      if (!placement.is_ordinary(block)) [[unlikely]] return false;
      counters.count_released(P::size_of(block), block->requested);
      placement.release_ordinary(block);
    } else {
      counters.count_released(P::size_of(block), block->requested);
      placement.release(block);
    }
    return true;
  }
  // A placement whose handles know their heap and address saves a look at the chunk.
  static PlacementHeap& heap_of(Handle block) {
    if constexpr (requires { P::heap_of(block); })
      return static_cast<PlacementHeap&>(*P::heap_of(block));
    else
      return static_cast<PlacementHeap&>(*chunk_of(block).heap);
  }
  static void* address_of(Handle block) {
    if constexpr (requires { P::address_of(block); })
      return P::address_of(block);
    else
      return reinterpret_cast<void*>(chunk_of(block).address_of(P::offset_of(block)));
  }
  static Handle& link_of(Handle block) { return P::link_of(block); }

  // --- For the front (FrontHeap).
  BlockFacts facts(void* handle) const override {
    const auto block = static_cast<Handle>(handle);
    return {address_of(block), P::size_of(block), block->requested, P::offset_of(block)};
  }
  void* place(std::size_t size_bytes, bool) override {
    return counted(placement.place(size_bytes), size_bytes);
  }
  [[gnu::noinline]] void release(void* handle) override {
    const auto block = static_cast<Handle>(handle);
    const std::uint64_t size = P::size_of(block);
    const std::uint64_t requested = block->requested;
    placement.release(block);
    counters.count_released(size, requested);
  }
  // Within the block, and beyond it where the placement extends blocks.
  void* extend(void* handle, std::size_t size_bytes) override {
    auto block = static_cast<Handle>(handle);
    const std::uint64_t size = P::size_of(block);
    const std::uint64_t requested = block->requested;
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
  void add_remote_free(void* handle) override {
    const auto block = static_cast<Handle>(handle);
    push_remote_free(block, link_of(block));
  }
  void release_remote_frees() override { drain_remote_frees(*this); }
  // A block is only ever reused on its own stream, unless the placement orders other streams.
  bool record_use(void* handle, Stream stream) override {
    if constexpr (requires(Handle block) { placement.record_use(block, stream); }) {
      placement.record_use(static_cast<Handle>(handle), stream);
      return true;
    }
    return false;
  }
  std::uint64_t largest_free() const override { return placement.largest_free(); }

  // --- For growth (ChunkHeap).
  std::uint64_t wanted_bytes(std::uint64_t size_bytes, int choice) const override {
    return placement.chunk_bytes(size_bytes, choice, chunk_bytes());
  }
  bool replaces_free_chunks() const override {
    if constexpr (requires { placement.replaces_free_chunks(); })
      return placement.replaces_free_chunks();
    return false;
  }
  Chunk* chunk_to_borrow() const override {
    if constexpr (requires { placement.chunk_to_borrow(); }) return placement.chunk_to_borrow();
    return nullptr;
  }
  Chunk* surplus() const override {
    if constexpr (requires { placement.surplus(); }) return placement.surplus();
    return nullptr;
  }
  void note_refused() override { placement.note_refused(); }
  bool withdraw(Chunk& chunk) override {
    if (!P::is_wholly_free(extent_of(chunk))) return false;
    placement.remove_chunk(extent_of(chunk));
    return true;
  }

  P placement;

 private:
  static const Chunk& chunk_of(Handle block) { return *static_cast<const Chunk*>(block->owner); }
  static typename P::Extent* extent_of(const Chunk& chunk) {
    return static_cast<typename P::Extent*>(chunk.extent);
  }
  Handle counted(Handle block, std::size_t size_bytes) {
    if (block == nullptr) [[unlikely]] return nullptr;
    block->requested = size_bytes;
    counters.count_placed(P::size_of(block), size_bytes);
    return block;
  }
  void* add_extent(Chunk& chunk, bool borrowed) override {
    return placement.add_chunk(chunk.offset_base, chunk.size_bytes, &chunk, borrowed);
  }
  void for_each_block(const Chunk& chunk, const Visit& visit) const override {
    placement.for_each_block(extent_of(chunk),
                             [&](Handle block, bool used) { visit(block, chunk_of(block), used); });
  }
  void check_placement() const override { placement.check_invariants(); }
};

}  // namespace tenon
