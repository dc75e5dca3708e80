// Programs of models as traces, from a seed: recordings that no constant was tuned on.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tenon/trace/trace.h"

namespace tenon {

// What a program is to be; what is left out follows from the seed.
struct SynthesisOptions {
  std::uint64_t seed = 0;
  std::optional<std::string> kind;           // of synthesis_kinds()
  std::optional<std::uint64_t> live_bytes;   // about its live peak: 64 MiB to 128 GiB
  std::optional<std::uint32_t> steps;        // 1 to 100,000
  std::optional<std::uint32_t> streams;      // 1 to 8
  std::uint32_t most_events = 40'000;        // about, where the steps follow from the seed
  // Called after each step of the program, with how many are done and how many there are.
  std::function<void(std::uint32_t done, std::uint32_t all)> on_step;
};

// "transformer", "experts" and so on.
std::vector<std::string> synthesis_kinds();

// The allocations of a program that trains or runs a model, made of the shapes of its layers'
// tensors: docs/synthesize.md says what is in it. Times are those of a plausible device. The same
// options give the same trace on every machine. Throws InvalidArgument for what cannot be, naming
// what can. O(events), and a few short programs beforehand to find the model's size and batch.
Trace synthesize(const SynthesisOptions& options);

}  // namespace tenon
