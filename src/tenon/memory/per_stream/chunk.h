// A piece of driver memory that one stream's heap places blocks in, and what is counted.
#pragma once

#include <cstdint>

#include "tenon/device/backend.h"
#include "tenon/memory/stats.h"

namespace tenon {

// The `owner` of every block in it. Stable in memory while any block lives.
//
// Heaps place by numbers that rise with each chunk of a stream, not by addresses; so the layout is
// the same in every run, wherever the driver puts the chunks.
struct Chunk {
  std::uintptr_t address_of(std::uint64_t offset) const {
    return reinterpret_cast<std::uintptr_t>(segment.base) + (offset - offset_base);
  }

  void* allocator = nullptr;       // the PerStreamAllocator
  void* lane = nullptr;            // its lane
  std::uint64_t offset_base = 0;   // of the chunk, in its stream's numbers
  Segment segment;
  std::uint64_t size_bytes = 0;    // what the heap was given: at most segment.size_bytes
  void* extent = nullptr;          // the heap's name for it
};

// What one allocator counts at each block.
struct BlockCounters {
  Stat blocks;
  Stat bytes;
  Stat requested_bytes;

  void count_placed(std::uint64_t size, std::uint64_t requested) {
    blocks.increase(1);
    bytes.increase(static_cast<std::int64_t>(size));
    requested_bytes.increase(static_cast<std::int64_t>(requested));
  }
  void count_released(std::uint64_t size, std::uint64_t requested) {
    blocks.decrease(1);
    bytes.decrease(static_cast<std::int64_t>(size));
    requested_bytes.decrease(static_cast<std::int64_t>(requested));
  }
};

}  // namespace tenon
