#include "tenon/lab/synthesis/synthesis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/base/interruption.h"
#include "tenon/base/random.h"
#include "tenon/lab/synthesis/model.h"
#include "tenon/lab/synthesis/training.h"

namespace tenon {
namespace {

using synthesis::Kind;
using synthesis::Program;
using synthesis::Recipe;

constexpr std::uint64_t kLeastLive = 64 * kMiB;
constexpr std::uint64_t kMostLive = 128 * kGiB;
constexpr std::uint32_t kMostSteps = 100'000;
constexpr std::uint32_t kMostStreams = 8;
constexpr std::uint32_t kProbedSteps = 4;    // enough for the states of an optimiser
constexpr std::uint32_t kProbedTokens = 48;  // and for caches to grow
constexpr std::uint64_t kMostBatch = 1 << 16;
constexpr std::uint64_t kMostEvents = 20'000'000;  // in memory at once

template <typename T>
void require_between(const char* what, const T& value, std::uint64_t least, std::uint64_t most,
                     const char* remedy) {
  if (value < least || value > most)
    throw InvalidArgument(fmt::format("synthesize: {} {}; {}", what, value, remedy));
}

Recipe checked_recipe(const SynthesisOptions& options) {
  std::optional<Kind> kind;
  if (options.kind) {
    kind = synthesis::find_kind(*options.kind);
    if (!kind)
      throw InvalidArgument(fmt::format("synthesize: no program is called {}; take a seed or {}",
                                        *options.kind, fmt::join(synthesis_kinds(), ", ")));
  }
  Recipe recipe = synthesis::draw_recipe(options.seed, kind);
  if (options.live_bytes) {
    if (*options.live_bytes < kLeastLive || *options.live_bytes > kMostLive)
      throw InvalidArgument(fmt::format("synthesize: a live peak of {} is none of {} to {}",
                                        format_byte_size(*options.live_bytes),
                                        format_byte_size(kLeastLive), format_byte_size(kMostLive)));
    recipe.live_bytes = *options.live_bytes;
  }
  if (options.steps)
    require_between("steps:", *options.steps, 1, kMostSteps, "take 1 to 100000");
  if (options.streams) {
    require_between("streams:", *options.streams, 1, kMostStreams, "take 1 to 8");
    recipe.streams = *options.streams;
    if (recipe.streams == 1) recipe.shards = 1;  // sharding needs a stream to communicate on
  }
  return recipe;
}

struct Probe {
  std::uint64_t peak_bytes = 0;
  std::size_t events = 0;
};

// A short program of the recipe. Its shapes are those that the long one begins with.
Probe probe(Recipe recipe, std::uint32_t steps) {
  stop_if_asked();
  recipe.steps = steps;
  Program program("probe", recipe.slowdown);
  const Trace trace = synthesis::run_program(program, recipe);
  return {program.peak_bytes(), trace.replayed_events()};
}

Probe probe(const Recipe& recipe) {
  return probe(recipe, recipe.trains() ? kProbedSteps : kProbedTokens);
}

// How many of the kind's sizes leave room for a batch. None: where the live peak was asked for, an
// error; where it was drawn, it is raised until the smallest fits.
std::uint32_t sizes_that_fit(Recipe& recipe, bool live_was_asked_for) {
  std::uint64_t& target = recipe.live_bytes;
  std::uint32_t largest = 0;
  std::uint64_t least = 0;
  for (std::uint32_t size = 0; size < synthesis::model_sizes(recipe.kind); ++size) {
    recipe.size = size;
    recipe.batch = 1;
    const std::uint64_t peak = probe(recipe).peak_bytes;
    if (size == 0) least = peak;
    if (peak > target - target / 4) break;
    largest = size + 1;
  }
  if (largest > 0) return largest;
  if (live_was_asked_for)
    throw InvalidArgument(fmt::format("synthesize: {} cannot live on {}: the smallest such program "
                                      "of seed {} takes {}; allow a third more than that",
                                      kind_name(recipe.kind), format_byte_size(target),
                                      recipe.seed, format_byte_size(least)));
  target = least + least / 3 + 1;
  return 1;
}

// The largest batch whose live peak is the recipe's or less, of a model that leaves room for one.
void fit(Recipe& recipe, bool live_was_asked_for) {
  Random random(recipe.seed + 3);
  const std::uint32_t largest = sizes_that_fit(recipe, live_was_asked_for);
  const std::uint64_t target = recipe.live_bytes;
  // One of the three largest that fit.
  recipe.size = largest - 1 - static_cast<std::uint32_t>(random.below(std::min(largest, 3U)));
  std::uint64_t fits = 1;
  std::uint64_t above = 2;
  const auto holds = [&](std::uint64_t batch) {
    recipe.batch = batch;
    return probe(recipe).peak_bytes <= target;
  };
  while (above <= kMostBatch && holds(above)) {
    fits = above;
    above *= 2;
  }
  while (above - fits > std::max<std::uint64_t>(1, fits / 8)) {
    const std::uint64_t middle = fits + (above - fits) / 2;
    (holds(middle) ? fits : above) = middle;
  }
  recipe.batch = fits;
}

// On average, evaluation included.
std::size_t events_of_a_step(const Recipe& recipe) {
  constexpr std::uint32_t kFew = 2;
  constexpr std::uint32_t kMore = 12;
  const std::size_t few = probe(recipe, kFew).events;
  return std::max<std::size_t>(1, (probe(recipe, kMore).events - few) / (kMore - kFew));
}

void require_room_for_events(const Recipe& recipe) {
  const std::size_t a_step = events_of_a_step(recipe);
  if (a_step * recipe.steps > kMostEvents)
    throw InvalidArgument(fmt::format("synthesize: {} steps of about {} events each are more than "
                                      "{} events; take {} steps or fewer",
                                      recipe.steps, a_step, kMostEvents, kMostEvents / a_step));
}

// Some programs are short and some long.
std::uint32_t steps_within(const Recipe& recipe, std::uint32_t most_events) {
  const std::size_t a_step = events_of_a_step(recipe);
  Random random(recipe.seed + 5);
  const std::uint64_t events = most_events >> random.below(4);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(events / a_step, 3, kMostSteps));
}

}  // namespace

std::vector<std::string> synthesis_kinds() {
  std::vector<std::string> names;
  for (std::uint32_t i = 0; i < synthesis::kKinds; ++i)
    names.emplace_back(kind_name(static_cast<Kind>(i)));
  return names;
}

Trace synthesize(const SynthesisOptions& options) {
  Recipe recipe = checked_recipe(options);
  fit(recipe, options.live_bytes.has_value());
  recipe.steps = options.steps ? *options.steps : steps_within(recipe, options.most_events);
  if (options.steps) require_room_for_events(recipe);
  Program program(fmt::format("{}-{}", kind_name(recipe.kind), recipe.seed), recipe.slowdown,
                  options.on_step);
  return synthesis::run_program(program, recipe);
}

}  // namespace tenon
