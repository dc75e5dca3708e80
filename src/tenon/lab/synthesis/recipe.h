// Which program a seed stands for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tenon/lab/synthesis/optimizer.h"
#include "tenon/lab/synthesis/tape.h"

namespace tenon::synthesis {

enum class Kind : std::uint8_t {
  kTransformer,
  kExperts,
  kLongContext,
  kLora,
  kConvolution,
  kDetection,
  kDiffusion,
  kRecommender,
  kGraph,
  kSpeech,
  kGenerate,  // caches grow by concatenation
  kServe,     // caches are pages
};
inline constexpr std::uint32_t kKinds = 12;

std::string_view kind_name(Kind kind);
std::optional<Kind> find_kind(std::string_view name);

// What a program is like. Everything that it draws later comes from the seed too.
struct Recipe {
  Kind kind = Kind::kTransformer;
  std::uint64_t seed = 0;
  std::uint64_t live_bytes = 0;      // about what it is to hold at its peak
  std::uint32_t size = 0;            // of the model: an index into its kind's sizes
  std::uint64_t batch = 1;           // samples, requests, or thousands of tokens or nodes
  std::uint32_t steps = 0;
  std::uint32_t accumulate = 1;      // passes for each update
  std::uint32_t evaluate_every = 0;  // steps; 0: never
  std::uint32_t streams = 1;
  std::uint32_t shards = 1;          // devices that share parameters and states
  std::uint64_t slowdown = 1;
  Precision precision = Precision::kSingle;
  Optimizer optimizer = Optimizer::kSgd;
  bool varying = false;              // shapes differ from step to step
  bool checkpoints = false;
  bool clips = false;
  bool flash = true;

  bool trains() const { return kind != Kind::kGenerate && kind != Kind::kServe; }
};

// Everything but size, batch and steps, drawn from the seed; the kind too unless it is given.
Recipe draw_recipe(std::uint64_t seed, std::optional<Kind> kind);

}  // namespace tenon::synthesis
