// Gradients that are used up as they come.
#pragma once

#include <cstdint>
#include <memory>

#include "tenon/autograd/autograd.h"

namespace tenon::autograd {

// Takes what backward finds for a leaf, instead of leaving it in the leaf's grad.
//
// A matrix's gradient comes in pieces while it is computed, so that the whole is never there:
// begin(), take() for disjoint pieces that cover it (from several threads at once), finish(). That
// needs a leaf that one call alone used, by an operator that knows how (linear), a backward that
// keeps no graph, and nothing else that wants to see the gradient: no hooks, no grad already there.
// Else, or for other leaves, take_whole() is called when the leaf's grad is whole, after its hooks.
//
// What it throws ends backward; pieces taken before stay taken. Calls for one leaf come from the
// thread of the backward, but for take().
class GradientTaker {
 public:
  virtual ~GradientTaker() = default;

  // Whether the leaf keeps its values until finish(): then pieces may come while backward still
  // reads them, and what else it saved for them can go before.
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
