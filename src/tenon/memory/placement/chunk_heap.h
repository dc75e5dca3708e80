// One stream's heap of the policies that only place: pool, buddy, arena and plan.
#pragma once

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

  // --- What a policy says of its growth.
  // Bytes of a new chunk for a request that found no room: the first (0), second, ... choice; 0
  // bytes when there is no further choice.
  virtual std::uint64_t wanted_bytes(std::uint64_t size_bytes, int choice) const = 0;
  // Whether wholly free chunks are to go back before a larger one comes.
  virtual bool replaces_free_chunks() const { return false; }
  // A chunk of another stream's heap to place in too; null: there is none.
  virtual Chunk* chunk_to_borrow() const { return nullptr; }
  // A wholly free chunk that is to go back at once; null: there is none.
  virtual Chunk* surplus() const { return nullptr; }
  virtual void note_refused() {}  // the driver had none of the chunks

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
  // By offset.
  virtual void for_each_block(const Chunk& chunk, const Visit& visit) const = 0;
  virtual void check_placement() const = 0;

 private:
  std::uint64_t offset_end_ = 0;  // where the next chunk's numbers begin
  std::uint64_t chunk_bytes_ = 0;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::unique_ptr<Chunk> borrowed_;
};

// What a policy's heap H, derived from it, has by the rules of where its blocks lie. A B has
// `owner`, the chunk, inherited from its extent when blocks are cut, and a field `requested`. H has
//
//   B* place_block(size)          null when nothing fits
//   release_block(block)
//   size_of, offset_of, link_of   of a block; offsets are among the stream's numbers
//
// and hides, by functions of the same names, what it can do better than those here.
template <typename H, typename B>
class PlacementHeap : public ChunkHeap {
 public:
  using Handle = B*;
  using ChunkHeap::ChunkHeap;

  // --- For the fast path (FastHeap).
  Handle place_fast(std::size_t size_bytes) {
    return counted(self().place_block(size_bytes), size_bytes);
  }
  bool release_fast(Handle block) {
    counters.count_released(H::size_of(block), block->requested);
    self().release_block(block);
    return true;
  }
  static H& heap_of(Handle block) { return static_cast<H&>(*chunk_of(block).heap); }
  static void* address_of(Handle block) {
    return reinterpret_cast<void*>(chunk_of(block).address_of(H::offset_of(block)));
  }

  // --- For the front (FrontHeap).
  BlockFacts facts(void* handle) const override {
    const auto block = static_cast<Handle>(handle);
    return {H::address_of(block), H::size_of(block), block->requested, H::offset_of(block)};
  }
  void* place(std::size_t size_bytes, bool) override {
    return counted(self().place_block(size_bytes), size_bytes);
  }
  [[gnu::noinline]] void release(void* handle) override {
    const auto block = static_cast<Handle>(handle);
    const std::uint64_t size = H::size_of(block);
    const std::uint64_t requested = block->requested;
    self().release_block(block);
    counters.count_released(size, requested);
  }
  // Within the block, and beyond it where the placement extends blocks.
  void* extend(void* handle, std::size_t size_bytes) override {
    auto block = static_cast<Handle>(handle);
    const std::uint64_t size = H::size_of(block);
    const std::uint64_t requested = block->requested;
    if (size_bytes > size) block = self().extend_block(block, size_bytes);
    if (block == nullptr) return nullptr;
    counters.count_released(size, requested);
    return counted(block, size_bytes);
  }
  void add_remote_free(void* handle) override {
    const auto block = static_cast<Handle>(handle);
    push_remote_free(block, H::link_of(block));
  }
  void release_remote_frees() override { drain_remote_frees(self()); }
  // A block is only ever reused on its own stream, unless the placement orders other streams.
  bool record_use(void*, Stream) override { return false; }

 protected:
  static const Chunk& chunk_of(Handle block) { return *static_cast<const Chunk*>(block->owner); }
  Handle extend_block(Handle, std::uint64_t) { return nullptr; }
  Handle counted(Handle block, std::size_t size_bytes) {
    if (block == nullptr) [[unlikely]] return nullptr;
    block->requested = size_bytes;
    counters.count_placed(H::size_of(block), size_bytes);
    return block;
  }

 private:
  H& self() { return static_cast<H&>(*this); }
};

}  // namespace tenon
