// Which call made the first NaN, in tensors of any shape and dtype. Thread-safe while no thread
// writes the tensors; an AnomalyMode is the calling thread's own. Each check is O(elements). Throws
// OutOfMemory.
#pragma once

#include <span>

#include "tenon/autograd/node.h"

namespace tenon::autograd {

// Throws InvalidArgument for a gradient with a NaN, naming the node and its forward call.
void check_gradients(const Node& node, std::span<const Tensor> gradients);
// Whether an element of a floating-point or complex tensor on the host is NaN; false for others.
bool has_nan(const Tensor& t);

}  // namespace tenon::autograd
