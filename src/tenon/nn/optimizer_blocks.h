// The arithmetic of optimisers on dense blocks.
#pragma once

#include <cstdint>

#include "tenon/tensor/dtype.h"

namespace tenon::nn {

// Numbers of one update, in the order of the formulas of optimizer.h.
struct SgdNumbers {
  double scale, weight_decay, momentum, one_minus_dampening, rate;
  bool nesterov, first;
};
struct AdamNumbers {
  double scale, gradient_decay, parameter_factor;  // the latter: 1 - rate * decay, or 1
  double beta1, beta2, eps, step, root_correction;  // rate / (1 - beta1^t), sqrt(1 - beta2^t)
};

// p, g and the state are arrays of `count` elements of the dtype (f32, f64); v is null without
// momentum.
struct OptimizerBlocks {
  void (*sgd)(void* p, const void* g, void* v, std::int64_t count, const SgdNumbers& n);
  void (*adam)(void* p, const void* g, void* m, void* v, std::int64_t count, const AdamNumbers& n);
  double (*sum_of_squares)(const void* g, std::int64_t count);
};

// For the best instruction set that the machine has. Requires: f32 or f64.
OptimizerBlocks optimizer_blocks(DType dtype);

}  // namespace tenon::nn
