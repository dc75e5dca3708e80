// Gradients that are used up as they come. They have their leaf's shape and dtype. O(1) beside what
// the taker does.
#pragma once

#include <cstdint>
#include <memory>

#include "tenon/autograd/autograd.h"

namespace tenon::autograd {

// Takes what backward finds for a leaf, instead of leaving it in the leaf's grad.
//
// Takes a matrix's gradient in pieces while it is computed, so the whole gradient is never stored.
// The calls: begin(), take() for disjoint pieces that cover it (on several threads), finish().
// Requires a leaf that one call alone used, by an operator that supports it (linear). Backward must
// keep no graph, and nothing else may use the gradient: no hooks, no grad already there. Else, or
// for other leaves, take_whole() is called when the leaf's grad is whole, after its hooks.
//
// What it throws ends backward; pieces taken before stay taken. Calls for one leaf come from the
// thread of the backward, but for take().
class GradientTaker {
 public:
  virtual ~GradientTaker() = default;

  // Whether the leaf keeps its values until finish(). Then pieces may come while backward still
  // reads them, and what else it saved for them can be freed before.
  virtual bool keeps_leaf_until_finish() const = 0;
  virtual void begin() = 0;
  // `count` elements of the gradient from element `first` on, dense, in the leaf's dtype.
  virtual void take(std::int64_t first, std::int64_t count, const void* gradient) = 0;
  virtual void finish() = 0;

  // The leaf's grad is whole. Usually ends with clear_grad(leaf).
  virtual void take_whole(const Tensor& leaf) = 0;
};

// From now on gradients of the leaf go to the taker. Throws InvalidArgument where the tensor is no
// leaf that requires a gradient, or has a taker.
HookHandle set_gradient_taker(const Tensor& leaf, std::shared_ptr<GradientTaker> taker);

}  // namespace tenon::autograd
