// One contiguous piece of an extent: in use, free, or an address without memory.
#pragma once

#include <cstdint>
#include <cstring>

namespace tenon {

// A number below 2^48 in six bytes. Not a bit field: a processor cannot forward a store of the byte
// beside it to a load of the whole word, and waits until the store is in the cache.
class Uint48 {
 public:
  Uint48() = default;
  Uint48& operator=(std::uint64_t value) {
    const auto low = static_cast<std::uint32_t>(value);
    const auto high = static_cast<std::uint16_t>(value >> 32);
    std::memcpy(bytes_, &low, sizeof low);
    std::memcpy(bytes_ + sizeof low, &high, sizeof high);
    return *this;
  }
  operator std::uint64_t() const {
    std::uint32_t low = 0;
    std::uint16_t high = 0;
    std::memcpy(&low, bytes_, sizeof low);
    std::memcpy(&high, bytes_ + sizeof low, sizeof high);
    return std::uint64_t{high} << 32 | low;
  }

 private:
  unsigned char bytes_[6] = {};
};

struct SizeNode;

// A block is its own handle: releasing it looks nothing up. One cache line.
//
//   extent:  | block | block | block |     prev/next link neighbours by address;
//              free    used    free        null at the extent's borders
//
// The heap owns offset, size, links and `state` (and `left` and `right` while a block is free). The
// rest belongs to the policy above: a cut copies it to both parts. `requested` doubles as a stamp
// of free blocks, say the sequence number of the last free: a block that is released gives its own
// to what it joins, and where free blocks join otherwise the larger one stays.
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
    SizeNode* leaf;          // free, among many of its size: where the size index has it
    void* context;           // used: the policy's own
  };
  union {
    Block* right = nullptr;  // free: child in the size index
    Block* link;             // used: the policy's own lists (pending, freed by another thread)
  };
  void* owner = nullptr;     // the policy's: which stream's heap, which segment
  Uint48 requested;         // used: bytes asked for. free: the policy's stamp (above)
  State state = State::kFree;
  std::uint8_t flags = 0;   // the policy's own
};
static_assert(sizeof(Block) == 64);

}  // namespace tenon
