// Finding a trace's forward and backward passes and optimiser steps.
#pragma once

#include <span>
#include <vector>

#include "tenon/lab/verdict/categories.h"
#include "tenon/lab/verdict/stack_hint.h"

namespace tenon {

// What a phase's name or a tag says: "Optimizer.step#AdamW.step", "backward", "## forward ##".
Doing doing_of_text(std::string_view text);

// When a program let a block go: an event's number, Lifetime::kNever where it did not.
inline std::uint32_t freed_at(const Lifetime& life) {
  return life.requested != Lifetime::kNever ? life.requested : life.completed;
}

// The stretch that holds the event, or the first behind it; null where there is none.
const Stretch* stretch_at_or_after(const std::vector<Stretch>& stretches, std::uint32_t event);

Passes find_passes(const Trace& trace, std::span<const Lifetime> lives,
                   std::span<const std::uint32_t> phases, const CallSites& sites,
                   std::span<const StackHint> hints);

}  // namespace tenon
