// The arithmetic of optimisers on dense blocks.
#pragma once

#include <cstdint>

#include "tenon/tensor/dtype.h"

namespace tenon::nn {

// What an update does: the state from the gradient, or the parameter from the state.
enum class UpdatePart : std::uint8_t { kBoth, kState, kParameter };

// Numbers of one update, in the order of the formulas of optimizer.h.
struct SgdNumbers {
  double scale, weight_decay, momentum, one_minus_dampening, rate;
  bool nesterov, first;
};
struct AdamNumbers {
  double scale, gradient_decay, parameter_factor;   // the latter: 1 - rate * decay, or 1
  double beta1, beta2, eps, step, root_correction;  // rate / (1 - beta1^t), sqrt(1 - beta2^t)
};

// p, g and the state are arrays of `count` elements of the dtype (f32, f64); v is null without
// momentum. kState and then kParameter (which needs no g) do the same to the bit as kBoth, however
// the elements are cut: no products and sums are joined to one rounding. Not so for sgd without
// momentum or with Nesterov's, which takes kBoth only.
struct OptimizerBlocks {
  void (*sgd)(void* p, const void* g, void* v, std::int64_t count, const SgdNumbers& n,
              UpdatePart part);
  void (*adam)(void* p, const void* g, void* m, void* v, std::int64_t count, const AdamNumbers& n,
               UpdatePart part);
  double (*sum_of_squares)(const void* g, std::int64_t count);
};

// For the best instruction set that the machine has. Requires: f32 or f64.
OptimizerBlocks optimizer_blocks(DType dtype);

}  // namespace tenon::nn
