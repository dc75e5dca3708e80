// The derivative of max_pool2d of channels-last tensors on the host, by vectors of channels.
#pragma once

#include "tenon/ops/pool.h"
#include "tenon/tensor/tensor.h"

namespace tenon::autograd::channel_pool {

// Which element of each window (its own, without padding) is its maximum: the first of equal ones,
// or a NaN; a byte for each, channels-last. Undefined for other tensors, for windows of more than
// 256 elements, and for what the operator, which runs later, refuses.
Tensor choices(const Tensor& a, const ops::PoolOptions& options);
// The gradient of the input, channels-last. Not recorded.
Tensor gradient(const Tensor& result, const Tensor& choices, IntList sizes,
                const ops::PoolOptions& options);
// The choices as places in the plane, i64.
Tensor places(const Tensor& choices, IntList sizes, const ops::PoolOptions& options);

}  // namespace tenon::autograd::channel_pool
