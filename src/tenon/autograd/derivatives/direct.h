// Derivatives by kernels of their own, where nothing needs to be recorded: what training does most.
#pragma once

#include "tenon/autograd/record.h"
#include "tenon/ops/conv.h"
#include "tenon/ops/pool.h"

// Each serves dense f32 on the host and some shapes; where it does not, the result is undefined (or
// false) and nothing has been done. Requires: !formulas_recorded().
namespace tenon::autograd::direct {

// Of conv2d, by oneDNN. The second fills those of `weight` and, if `with_bias`, of `bias`.
Tensor conv_input(const Tensor& gradient, const Tensor& weight, IntList sizes,
                  const ops::ConvOptions& options);
bool conv_weight(const Tensor& gradient, const Tensor& a, IntList sizes,
                 const ops::ConvOptions& options, bool with_bias, Tensor& weight, Tensor& bias);

// Of max_pool2d without padding.
Tensor max_pool(const Tensor& gradient, const Tensor& a, const ops::PoolOptions& options);

// Of softmax along the last dimension, from its result.
Tensor softmax(const Tensor& gradient, const Tensor& result, std::int64_t dim);

// Of gelu by tanh; into `gradient` itself where nobody else sees it.
Tensor gelu_tanh(const Tensor& gradient, const Tensor& a);

}  // namespace tenon::autograd::direct
