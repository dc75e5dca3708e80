// The repeated layers of a model, as the activations of one moment show them. Thread-safe: pure
// functions of their arguments. The only error is lack of memory (std::bad_alloc).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "tenon/lab/explain/live_set.h"

namespace tenon {

// Sites with at least four activations live at once are layers' own.
struct Layers {
  struct Site {
    std::uint32_t blocks = 0;
    std::uint64_t bytes = 0;
    std::uint64_t each() const { return bytes / blocks; }
  };
  std::map<std::uint32_t, Site> sites;  // by site; empty: nothing repeats
  std::uint32_t number = 0;             // as many layers as most sites have blocks
  std::uint32_t input = 0;              // the site of a layer's input, one of its smaller results
};

// What is live when `events` events have happened. O(blocks).
Layers find_layers(const TraceFacts& facts, std::size_t events);

// Of the layers' sites those that keep attention's scores, where these are written out: a softmax,
// and what stands beside it in the program and has the softmax's size in some element type.
std::set<std::uint32_t> find_scores(const TraceFacts& facts, const Layers& layers);

// By block: whether the sites that `of` picks made it in the first `events` events, and in another
// layer than its pass's last: backward has that layer when it begins. O(events).
template <typename Pick>
std::vector<bool> of_earlier_layers(const TraceFacts& facts, std::size_t events,
                                    const Layers& layers, Pick&& of) {
  std::vector<bool> out(facts.trace.blocks, false);
  std::map<std::uint32_t, std::vector<std::uint32_t>> pass;  // by site: blocks of this pass
  const auto finish = [&] {
    for (auto& [site, blocks] : pass) {
      const std::size_t stay = (blocks.size() + layers.number - 1) / layers.number;
      for (std::size_t i = 0; i + stay < blocks.size(); ++i) out[blocks[i]] = true;
    }
    pass.clear();
  };
  const Categories& categories = facts.categories;
  for (std::size_t i = 0; i < events; ++i) {
    const TraceEvent& event = facts.trace.events[i];
    if (event.op != TraceOp::kAlloc) continue;
    const Doing doing = categories.passes.doing[event.block];
    if (doing == Doing::kBackward) finish();
    if (doing == Doing::kForward && layers.sites.count(event.site) != 0 && of(event.site) &&
        categories.blocks[event.block].category == Category::kActivations)
      pass[event.site].push_back(static_cast<std::uint32_t>(event.block));
  }
  finish();
  return out;
}

}  // namespace tenon
