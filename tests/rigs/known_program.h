// Programs that were made up, whose every block has a known category: what the categories of real
// recordings are measured with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/lab/verdict/category.h"
#include "tenon/trace/trace.h"

namespace tenon {

struct KnownProgram {
  std::string what;             // "transformer, 12 layers, adam (foreach), C++ and Python stacks"
  Trace trace;
  std::vector<Category> truth;  // by block
};

// A training or an inference drawn from the seed: its model (transformer, convolutions, perceptron;
// layers, sizes), optimiser (SGD, momentum, Adam in its three ways, Adafactor, one of the program's
// own), accumulation, checkpoints, caches of keys and values, where the recording begins (before
// the model, or late), how it ends (after a step, or in the middle by a failure), and what it
// records (stacks of Python, of C++ and Python, none; annotations of steps or none).
KnownProgram make_known_program(std::uint64_t seed);

}  // namespace tenon
