// One stream's heap of the policies that only place: pool, buddy, arena and plan.
#pragma once

#include <cstdint>

#include "tenon/memory/front/extent_heap.h"

namespace tenon {

// Blocks in chunks begin at multiples of it, so none is smaller.
inline constexpr std::uint64_t kChunkStepBytes = 256;

// What growth asks of the placement. A chunk is an extent of one segment.
class ChunkHeap : public ExtentHeap {
 public:
  using ExtentHeap::ExtentHeap;

  // Bytes of a new chunk for a request that found no room: the first (0), second, ... choice; 0
  // bytes when there is no further choice.
  virtual std::uint64_t wanted_bytes(std::uint64_t size_bytes, int choice) const = 0;
  // Whether wholly free chunks are to go back before a larger one comes.
  virtual bool replaces_free_chunks() const { return false; }
  // Whether there is a chunk of another stream's heap to place in too; takes it.
  virtual bool can_borrow() const { return false; }
  virtual void borrow() {}
  // A wholly free chunk that is to go back at once; null: there is none.
  virtual Extent* surplus() const { return nullptr; }
  virtual void note_refused() {}  // the driver had none of the chunks

  bool has_surplus() const override { return surplus() != nullptr; }
};

// What a policy's heap H, derived from it, has by the rules of where its blocks lie. A B has
// `owner`, the chunk, inherited from its extent when blocks are cut, and a field `requested`. H has
//
//   B* place_block(size)          null when nothing fits
//   release_block(block)
//   size_of, offset_of, link_of   of a block; offsets are in the stream's range
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
    return reinterpret_cast<void*>(chunk_of(block).origin + H::offset_of(block));
  }

  // --- For the front (FrontHeap).
  BlockFacts facts(void* handle) const override {
    const auto block = static_cast<Handle>(handle);
    return {H::address_of(block), H::size_of(block), block->requested, H::offset_of(block)};
  }
  [[gnu::cold]] void* place(std::size_t size_bytes, bool) override {
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
  [[gnu::cold]] void* extend(void* handle, std::size_t size_bytes) override {
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
  static const Extent& chunk_of(Handle block) { return *static_cast<const Extent*>(block->owner); }
  static State state_of(bool used) { return used ? State::kActive : State::kInactive; }
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
