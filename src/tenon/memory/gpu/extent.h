// One piece of driver memory, or of addresses, that a stream's heap places blocks in.
#pragma once

#include <cstdint>

#include "tenon/device/backend.h"
#include "tenon/heap/block.h"

namespace tenon {

class BlockHeap;

enum class Pool : std::uint8_t { kSmall, kLarge };
inline constexpr int kPools = 2;

// Every block's `owner`. Stable in memory from creation to removal.
struct Extent {
  BlockHeap* heap = nullptr;
  Pool pool = Pool::kSmall;
  Segment segment;              // base and size; for growable ranges, the addresses
  bool growable = false;        // an address range with pages mapped into it
  std::uint64_t layout_base = 0;  // the extent's place in its stream's range, for layout_offset
  Block* first = nullptr;       // the lowest block: cuts and joins keep it in place
};

inline bool is_free(const Block* block) {
  return block != nullptr && block->state != Block::State::kUsed;
}

}  // namespace tenon
