// Where the bytes of a training run are: by layer and by what they are for. Thread-safe: pure
// functions of their arguments. The only error is lack of memory (std::bad_alloc).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/trace/trace.h"

namespace tenon {

// What happened to one block, or the end of a part of a step. Tags are those of memory/tag.h.
struct StepEvent {
  // What happened.
  enum class Kind : std::uint8_t { kAlloc, kFree, kForwardEnds, kBackwardEnds };
  Kind kind = Kind::kAlloc;
  std::uint32_t block = 0;         // a number of its own for every allocation
  std::uint64_t size_bytes = 0;    // of an allocation
  const char* phase = nullptr;     // "parameters", "optimiser", "data", "forward", "backward", ...
  const char* layer = nullptr;     // the call site
  std::int64_t time_us = 0;
};

// What a block is for. A block of the forward pass that is live when the pass ends is an
// activation. One of the backward pass that is live when that ends is a gradient. All others are
// temporary. The rest follows from the phase.
enum class MemoryUse : std::uint8_t {
  kParameters,
  kGradients,
  kOptimiser,
  kActivations,
  kTemporaries,
  kData,
  kCommunication,  // buffers of what goes between processes
  kOther,
};
inline constexpr std::size_t kMemoryUses = 8;
// In words: "activations".
std::string_view memory_use_name(MemoryUse use);

// The bytes of one layer.
struct LayerBytes {
  std::string layer;         // empty: none was named
  std::uint64_t at_peak = 0;  // bytes of this layer, when most was live in all
  std::uint64_t largest = 0;  // most of this layer at any one time
};

// Where the bytes of a step are.
struct StepProfile {
  std::uint64_t peak_bytes = 0;  // most live at once, as asked for
  std::array<std::uint64_t, kMemoryUses> at_peak{};  // of them, by use
  std::array<std::uint64_t, kMemoryUses> largest{};  // most of each at any one time
  std::vector<LayerBytes> layers;  // in the order in which they first allocate
  std::uint64_t allocations = 0;
  std::uint64_t frees = 0;
};

// Requires: a block is allocated before it is freed, and freed once. O(events).
StepProfile profile_step(std::span<const StepEvent> events);

// The same events as a trace, to be replayed over any policy.
Trace trace_of(std::span<const StepEvent> events, const std::string& name);

// The bytes of temporaries that a bump allocator needs for the events. Each allocated block of at
// least one byte is rounded up to `alignment` (a power of two) and follows the one before.
std::uint64_t bump_bytes(std::span<const StepEvent> events, std::uint64_t alignment);

}  // namespace tenon
