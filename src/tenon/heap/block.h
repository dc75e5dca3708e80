// One contiguous piece of an extent: in use, free, or an address without memory.
#pragma once

#include <cstdint>

namespace tenon {

// A block is its own handle: releasing it looks nothing up. One cache line.
//
//   extent:  | block | block | block |     prev/next link neighbours by address;
//              free    used    free        null at the extent's borders
//
// The heap owns offset, size, links and `state` (and `left` and `right` while a block is free). The
// rest belongs to the policy above: a cut copies it to both parts. `requested` doubles as a stamp
// of free blocks, say the sequence number of the last free; free blocks that join keep the larger
// one.
struct alignas(64) Block {
  enum class State : std::uint8_t {
    kUsed,
    kFree,      // free, with memory behind all of it
    kUnbacked,  // free addresses with no memory behind any of it
  };

  std::uint64_t offset = 0;  // address or offset: a number that the heap orders by
  std::uint64_t size = 0;
  Block* prev = nullptr;     // neighbour below in the same extent
  Block* next = nullptr;     // neighbour above
  union {
    Block* left = nullptr;   // free: child in the size index
    void* context;           // used: the policy's own
  };
  union {
    Block* right = nullptr;  // free: child in the size index
    Block* link;             // used: the policy's own lists (pending, freed by another thread)
  };
  void* owner = nullptr;     // the policy's: which stream's heap, which segment
  std::uint64_t requested : 48 = 0;  // used: bytes asked for. free: the policy's stamp (below)
  State state : 8 = State::kFree;
  std::uint64_t flags : 8 = 0;       // the policy's own
};
static_assert(sizeof(Block) == 64);

}  // namespace tenon
