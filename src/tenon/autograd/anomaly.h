// Which call made the first NaN.
#pragma once

#include <span>

#include "tenon/autograd/node.h"

namespace tenon::autograd {

// Throws InvalidArgument for a gradient with a NaN, naming the node and its forward call.
void check_gradients(const Node& node, std::span<const Tensor> gradients);
bool has_nan(const Tensor& t);

}  // namespace tenon::autograd
