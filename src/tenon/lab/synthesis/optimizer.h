// What optimisers keep, and what a step allocates.
#pragma once

#include <cstdint>

#include "tenon/lab/synthesis/tape.h"

namespace tenon::synthesis {

enum class Optimizer : std::uint8_t {
  kSgd,         // one state a parameter, in place
  kAdamFused,   // two, in one kernel
  kAdamList,    // two, and a temporary for every parameter at once (PyTorch's foreach)
  kAdamLoop,    // two, and temporaries for one parameter after another
};

// Updates every parameter that has a gradient. The first step makes the states.
void optimizer_step(Tape& tape, Optimizer optimizer);
// Gradients go (set_to_none).
void drop_gradients(Tape& tape);
// The norm of all gradients, and a factor by it.
void clip_gradients(Tape& tape);

}  // namespace tenon::synthesis
