// Functions of one's own with their derivative. Tensors have the shapes and dtypes that the
// function gives and takes. What it throws ends the call or the backward. Thread-safe if the
// function is. O(inputs + results) more.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tenon/tensor/tensor.h"

namespace tenon::autograd {

// What forward hands to backward; one for each call.
class FunctionContext {
 public:
  // Tensors that backward needs: inputs, results or what was computed besides. They are checked by
  // version: backward throws InvalidArgument where one was changed in place since.
  void save_for_backward(std::vector<Tensor> tensors) { to_save_ = std::move(tensors); }
  // In backward: those tensors.
  const std::vector<Tensor>& saved() const { return saved_; }
  // Result i has no gradient, such as indices. Integers never have one.
  void mark_non_differentiable(std::size_t i) { without_gradient_.push_back(i); }
  // Whether the gradient of input i is wanted; in backward.
  bool needs_input_grad(std::size_t i) const { return i < wanted_.size() && wanted_[i]; }

 private:
  friend class CustomNode;
  friend std::vector<Tensor> apply_function(std::shared_ptr<class CustomFunction> function,
                                            std::span<const Tensor> inputs);

  std::vector<Tensor> to_save_;
  std::vector<Tensor> saved_;
  std::vector<std::size_t> without_gradient_;
  std::vector<bool> wanted_;
};

// A function with its derivative: torch.autograd.Function. Both are called on the thread of the
// call or of the backward; the object may serve several at once.
class CustomFunction {
 public:
  virtual ~CustomFunction() = default;
  virtual const char* name() const = 0;  // as long as the program

  // Runs without recording. A result may be an input or a view of one: see apply_function.
  virtual std::vector<Tensor> forward(FunctionContext& context,
                                      std::span<const Tensor> inputs) = 0;
  // The inputs' gradients, an undefined tensor for one that is not wanted or is zero. `gradients`
  // has one for each result, zeros where nothing arrived. With create_graph what it computes by
  // operators is recorded, so gradients of gradients come by themselves. As in PyTorch, a gradient
  // is cast to the input's dtype (a complex one to a real input's real part). It is summed to the
  // input's shape where the input broadcasts to the gradient's.
  virtual std::vector<Tensor> backward(FunctionContext& context,
                                       std::span<const Tensor> gradients) = 0;
};

// Runs the function, and records it if an input requires a gradient. Every result that may have a
// gradient gets the same node as its history, with its own output_nr. Forward mode is not followed.
// As in PyTorch, an input that forward returns comes back as a view of it with that history. A
// result that shares memory with an input or another result refuses recorded in-place changes:
// their gradients would bypass the function. Throws InvalidArgument for an undefined input or
// result. Backward throws it for another number of gradients than of inputs, and for a gradient of
// another device or shape.
std::vector<Tensor> apply_function(std::shared_ptr<CustomFunction> function,
                                   std::span<const Tensor> inputs);
inline std::vector<Tensor> apply_function(std::shared_ptr<CustomFunction> function,
                                          std::initializer_list<Tensor> inputs) {
  return apply_function(std::move(function), std::span(inputs.begin(), inputs.size()));
}

}  // namespace tenon::autograd
