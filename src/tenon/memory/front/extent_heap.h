// One stream's heap whose blocks lie in extents.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tenon/memory/front/stream_front.h"

namespace tenon {

class ExtentHeap;

// What a heap may keep apart: memory for small and for large requests.
enum class Pool : std::uint8_t { kSmall, kLarge };
inline constexpr int kPools = 2;

// A piece of driver memory, or of addresses, that a stream's heap places blocks in: the `owner` of
// each of them. Stable in memory while the heap has it.
//
// The offsets of a stream's range rise with each extent that it gets, so they are the same in every
// run, wherever the driver puts the extents.
struct Extent {
  // Where it begins in its stream's range.
  std::uint64_t offset() const { return reinterpret_cast<std::uintptr_t>(segment.base) - origin; }

  ExtentHeap* heap = nullptr;
  std::uintptr_t origin = 0;     // the address at offset 0
  std::uintptr_t shift = 0;      // from where the placement has a block to its address
  Segment segment;               // base and size; of growable ones, the addresses
  std::uint64_t size_bytes = 0;  // what blocks are placed in: at most segment.size_bytes
  Pool pool = Pool::kLarge;
  bool growable = false;         // addresses with pages mapped into them
  void* first = nullptr;         // the placement's name for it
  std::size_t place = 0;         // in its heap's list
};

// The list of extents, and what can be said of the blocks in them whatever their placement. Only
// the holder of the growth mutex changes the list, under the heap's lock.
class ExtentHeap : public FrontHeap {
 public:
  using FrontHeap::FrontHeap;

  // Throws std::bad_alloc; then nothing has changed.
  Extent& add_extent(const Segment& segment, std::uint64_t size_bytes, Pool pool,
                     bool growable = false);
  // Takes the extent out of the placement, if no block lives in it.
  virtual bool withdraw(Extent& extent) = 0;
  // The driver would not take it back.
  void reinstate(Extent& extent) { extent.first = give(extent); }
  // Requires: withdrawn, or the heap is about to end.
  void forget(Extent& extent);
  // Requires: no block lives in it.
  void remove_extent(Extent& extent) {
    withdraw(extent);
    forget(extent);
  }
  const std::vector<std::unique_ptr<Extent>>& extents() const { return extents_; }
  std::uint64_t extent_bytes() const { return extent_bytes_; }

  // One SegmentInfo for each extent; for growable ones, one for each run of backed blocks.
  [[gnu::cold]] void add_snapshot(std::vector<SegmentInfo>& out) const override;
  // Recounts everything from the blocks themselves.
  [[gnu::cold]] void check_invariants() const override;

 protected:
  using State = BlockInfo::State;
  // Of a block, the extent that it names.
  using Visit = std::function<void(void* block, const Extent& extent, State state)>;
  // Gives the extent's memory to the placement; returns the placement's name for it.
  virtual void* give(Extent& extent) = 0;
  // The backed blocks by address.
  virtual void for_each_block(const Extent& extent, const Visit& visit) const = 0;
  virtual void check_placement() const = 0;
  // An extent of another heap's that blocks of this one lie in; null: there is none.
  virtual const Extent* borrowed() const { return nullptr; }
  // How many blocks of the pool are active, and their bytes, as counted.
  virtual Pair active(Pool pool) const {
    return pool == Pool::kLarge ? Pair{counters.blocks(), counters.bytes()} : Pair{};
  }
  std::vector<BlockInfo> blocks_of(const Extent& extent) const;

 private:
  std::vector<std::unique_ptr<Extent>> extents_;
  std::uint64_t extent_bytes_ = 0;
  std::uint64_t offset_end_ = 0;  // where the next extent's offsets begin
};

}  // namespace tenon
