#include "tenon/lab/synthesis/recipe.h"

#include <array>

#include "tenon/base/byte_size.h"
#include "tenon/base/random.h"

namespace tenon::synthesis {
namespace {

constexpr std::array<std::string_view, kKinds> kNames = {
    "transformer", "experts",     "long-context", "lora",   "convolution", "detection",
    "diffusion",   "recommender", "graph",        "speech", "generate",    "serve"};

// One in `count`.
bool one_in(Random& random, std::uint64_t count) { return random.below(count) == 0; }

}  // namespace

std::string_view kind_name(Kind kind) { return kNames[static_cast<std::size_t>(kind)]; }

std::optional<Kind> find_kind(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<Kind>(i);
  return std::nullopt;
}

Recipe draw_recipe(std::uint64_t seed, std::optional<Kind> kind) {
  Random random(seed ^ 0x7465'6e6f'6e00'0001ULL);
  Recipe recipe;
  recipe.seed = seed;
  const auto drawn = static_cast<Kind>(random.below(kKinds));
  recipe.kind = kind.value_or(drawn);
  // Every octave from 128 MiB to 64 GiB alike, and a place within it.
  const std::uint64_t octave = 128 * kMiB << random.below(10);
  recipe.live_bytes = octave + octave / 16 * random.below(13);
  recipe.precision = static_cast<Precision>(random.below(3));
  recipe.optimizer = static_cast<Optimizer>(random.below(4));
  recipe.accumulate = one_in(random, 4) ? static_cast<std::uint32_t>(random.between(2, 4)) : 1;
  recipe.evaluate_every = one_in(random, 3) ? static_cast<std::uint32_t>(random.between(2, 5)) : 0;
  recipe.streams = static_cast<std::uint32_t>(one_in(random, 2) ? 1 : random.between(2, 8));
  recipe.shards = one_in(random, 6) ? 1U << random.between(1, 4) : 1;
  recipe.slowdown = std::uint64_t{1} << random.below(3);
  recipe.varying = one_in(random, 2);
  recipe.checkpoints = one_in(random, 4);
  recipe.clips = one_in(random, 3);
  recipe.flash = !one_in(random, 4);
  if (recipe.shards > 1 && recipe.streams < 2) recipe.streams = 2;
  if (recipe.kind == Kind::kLongContext) recipe.flash = true;
  if (recipe.kind == Kind::kLora) recipe.precision = Precision::kHalf;
  return recipe;
}

}  // namespace tenon::synthesis
