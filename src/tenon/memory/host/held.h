// A block of host memory as its user holds it, and what its record says of that.
#pragma once

#include <cstdint>

#include "tenon/heap/block.h"
#include "tenon/memory/host/span.h"

namespace tenon::host {

// What a block's record says of its use, in 64 bits.
//   free:  a multiple of 4 (often a pointer to the next free record)
//   used:  the bytes asked for, times 4, and how the block is held
namespace header {
inline constexpr std::uintptr_t kRaw = 1;    // by its bare pointer
inline constexpr std::uintptr_t kOwned = 2;  // by a DataPtr
constexpr std::uintptr_t make(std::uint64_t requested, std::uintptr_t how) {
  return requested << 2 | how;
}
constexpr std::uint64_t requested(std::uintptr_t header) { return header >> 2; }
constexpr bool is_raw(std::uintptr_t header) { return (header & kRaw) != 0; }
}  // namespace header

// Small or large.
struct Held {
  void* data = nullptr;
  void* context = nullptr;  // of a DataPtr
};

// The context of a DataPtr is a Slot for small blocks, a Block with this bit set for large ones.
inline constexpr std::uintptr_t kLargeBit = 1;

// Null for a small block's context.
inline Block* large_block_of(const void* context) {
  const auto bits = reinterpret_cast<std::uintptr_t>(context);
  return (bits & kLargeBit) == 0 ? nullptr : reinterpret_cast<Block*>(bits - kLargeBit);
}
inline void* context_of(Block* block) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(block) | kLargeBit);
}

// A used large block has its header where others have a link, and its heap as its context.
static_assert(sizeof(Block::link) == sizeof(std::uintptr_t));
inline std::uintptr_t header_of(const Block* block) {
  return reinterpret_cast<std::uintptr_t>(block->link);
}
inline void set_header(Block* block, std::uintptr_t header) {
  block->link = reinterpret_cast<Block*>(header);
}
inline LocalHeap& heap_of(const Block* block) { return *static_cast<LocalHeap*>(block->context); }

}  // namespace tenon::host
