// Are derivatives right? Compared with differences. Inputs and outputs have any shape. Runs f on
// the calling thread, and writes only its own copies of the inputs. Throws InvalidArgument for an
// input that requires a gradient and is neither f64 nor c128. Also for a number of outputs that
// changes between runs, and what f throws.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tenon/autograd/autograd.h"

namespace tenon::autograd {

// How near two derivatives must be: |a - b| <= atol + rtol |b|.
struct GradcheckOptions {
  double step = 1e-6;  // of the central differences
  double atol = 1e-5;
  double rtol = 1e-3;
  bool check_forward = true;  // tangents, too
};

// Differentiates f at `inputs` (f64 or c128; those that require a gradient) backward and forward,
// element by element. Compares with central differences of f. f's outputs that require no gradient
// are left out. Returns what is wrong first, or an empty string. O(elements of inputs and outputs)
// runs of f: for small tensors.
using CheckedFunction = std::function<std::vector<Tensor>(std::span<const Tensor>)>;
std::string gradcheck(const CheckedFunction& f, std::span<const Tensor> inputs,
                      const GradcheckOptions& options = {});

// The same for the gradients themselves, as functions of the inputs and of random gradients of the
// outputs. O(elements of inputs and outputs) runs of f with its backward.
std::string gradgradcheck(const CheckedFunction& f, std::span<const Tensor> inputs,
                          const GradcheckOptions& options = {});

}  // namespace tenon::autograd
