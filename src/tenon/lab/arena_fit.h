// How large the chunks of a scope's arena should be for a step that was recorded. Thread-safe.
// Throws OutOfMemory where the host has too little memory for the blocks.
#pragma once

#include <cstdint>
#include <span>

#include "tenon/lab/step_profile.h"

namespace tenon {

// A scope reuses room chunk by chunk: once all blocks of a chunk are gone. So one chunk for all is
// filled to the end and reuses nothing, and small ones waste their ends. A size between holds
// least; it depends on the order of the requests.
struct ArenaFit {
  std::uint64_t chunk_bytes = 0;       // of every chunk
  std::uint64_t reserved_bytes = 0;    // in all chunks
  std::uint64_t high_water_bytes = 0;  // most that the arena uses of them at once
};

// Runs the events through scopes with chunks of several sizes, on the host's memory. Returns the
// one that holds least, of equal ones that with the fewest chunks. A scope over a pool with chunks
// of that size that makes the same requests then holds and uses exactly so much. Blocks that the
// events free and did not make are left out. `alignment`: a power of two up to 4096. O(events),
// some dozens of times.
ArenaFit fit_arena(std::span<const StepEvent> events, std::uint64_t alignment);

}  // namespace tenon
