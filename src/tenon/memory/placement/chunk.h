// A piece of driver memory that one stream's heap places blocks in.
#pragma once

#include <cstdint>

#include "tenon/device/backend.h"

namespace tenon {

class StreamHeap;

// Blocks in chunks begin at multiples of it, so none is smaller.
inline constexpr std::uint64_t kChunkStepBytes = 256;

// The `owner` of every block in it. Stable in memory while any block lives.
//
// Heaps place by numbers that rise with each chunk of a stream, not by addresses; so the layout is
// the same in every run, wherever the driver puts the chunks.
struct Chunk {
  std::uintptr_t address_of(std::uint64_t offset) const {
    return reinterpret_cast<std::uintptr_t>(segment.base) + (offset - offset_base);
  }

  StreamHeap* heap = nullptr;
  std::uint64_t offset_base = 0;   // of the chunk, in its stream's numbers
  Segment segment;
  std::uint64_t size_bytes = 0;    // what the heap was given: at most segment.size_bytes
  void* extent = nullptr;          // the placement's name for it
  std::size_t place = 0;           // in its heap's list
};

}  // namespace tenon
