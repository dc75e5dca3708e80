#include "tenon/lab/step_profile.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "tenon/base/align.h"
#include "tenon/base/check.h"
#include "tenon/trace/trace_builder.h"

namespace tenon {
namespace {

using StepKind = StepEvent::Kind;

struct BlockLife {
  std::uint64_t size_bytes = 0;
  MemoryUse use = MemoryUse::kOther;
  std::size_t layer = 0;
};

MemoryUse use_of_phase(const char* phase) {
  const std::string_view name = phase == nullptr ? "" : phase;
  if (name == "parameters") return MemoryUse::kParameters;
  if (name == "gradients") return MemoryUse::kGradients;
  if (name == "communication") return MemoryUse::kCommunication;
  if (name == "optimiser") return MemoryUse::kOptimiser;
  if (name == "data") return MemoryUse::kData;
  // Until the pass ends.
  if (name == "forward" || name == "backward") return MemoryUse::kTemporaries;
  return MemoryUse::kOther;
}

// First pass: what each block is for.
std::unordered_map<std::uint32_t, BlockLife> classify(std::span<const StepEvent> events,
                                                      std::vector<LayerBytes>& layers) {
  std::unordered_map<std::uint32_t, BlockLife> blocks;
  std::map<std::string, std::size_t> layer_numbers;
  std::vector<std::uint32_t> of_pass;  // allocated since the last pass ended, and live
  for (const StepEvent& event : events) {
    if (event.kind == StepKind::kAlloc) {
      const std::string name = event.layer == nullptr ? "" : event.layer;
      const auto [layer, is_new] = layer_numbers.try_emplace(name, layers.size());
      if (is_new) layers.push_back({name, 0, 0});
      blocks[event.block] = {event.size_bytes, use_of_phase(event.phase), layer->second};
      if (blocks[event.block].use == MemoryUse::kTemporaries) of_pass.push_back(event.block);
    } else if (event.kind == StepKind::kFree) {
      std::erase(of_pass, event.block);
    } else {
      for (const std::uint32_t block : of_pass)
        blocks[block].use = event.kind == StepKind::kForwardEnds ? MemoryUse::kActivations
                                                             : MemoryUse::kGradients;
      of_pass.clear();
    }
  }
  return blocks;
}

}  // namespace

std::string_view memory_use_name(MemoryUse use) {
  constexpr std::array<std::string_view, kMemoryUses> kNames = {
      "parameters", "gradients", "optimiser", "activations", "temporaries", "data",
      "communication", "other"};
  return kNames[static_cast<std::size_t>(use)];
}

StepProfile profile_step(std::span<const StepEvent> events) {
  StepProfile profile;
  const std::unordered_map<std::uint32_t, BlockLife> blocks = classify(events, profile.layers);
  std::array<std::uint64_t, kMemoryUses> now{};
  std::vector<std::uint64_t> layer_now(profile.layers.size());
  std::uint64_t live = 0;
  for (const StepEvent& event : events) {
    if (event.kind != StepKind::kAlloc && event.kind != StepKind::kFree) continue;
    const BlockLife& block = blocks.at(event.block);
    const auto use = static_cast<std::size_t>(block.use);
    if (event.kind == StepKind::kFree) {
      ++profile.frees;
      live -= block.size_bytes;
      now[use] -= block.size_bytes;
      layer_now[block.layer] -= block.size_bytes;
      continue;
    }
    ++profile.allocations;
    live += block.size_bytes;
    now[use] += block.size_bytes;
    layer_now[block.layer] += block.size_bytes;
    profile.largest[use] = std::max(profile.largest[use], now[use]);
    LayerBytes& layer = profile.layers[block.layer];
    layer.largest = std::max(layer.largest, layer_now[block.layer]);
    if (live <= profile.peak_bytes) continue;
    profile.peak_bytes = live;
    profile.at_peak = now;
    for (std::size_t i = 0; i < layer_now.size(); ++i) profile.layers[i].at_peak = layer_now[i];
  }
  return profile;
}

Trace trace_of(std::span<const StepEvent> events, const std::string& name) {
  TraceBuilder builder(name);
  for (const StepEvent& event : events) {
    TraceFault fault = TraceFault::kNone;
    if (event.kind == StepKind::kAlloc)
      fault = builder.alloc(event.block, event.time_us, event.size_bytes, 0);
    else if (event.kind == StepKind::kFree)
      fault = builder.free(TraceOp::kFreeCompleted, event.block, event.time_us);
    TENON_CHECK(fault == TraceFault::kNone, "event of block {}", event.block);
  }
  return builder.finish();
}

std::uint64_t bump_bytes(std::span<const StepEvent> events, std::uint64_t alignment) {
  std::uint64_t bytes = 0;
  for (const StepEvent& event : events)
    if (event.kind == StepKind::kAlloc) bytes += align_up(event.size_bytes, alignment);
  return bytes;
}

}  // namespace tenon
