// Arithmetic on Vulkan devices. A common kernel offers its work here before it computes on the
// host; what is not taken runs there, in the memory that both share (Note [Host access] in
// tensor/host_access.h).
#pragma once

#include <cstdint>
#include <initializer_list>

#include "tenon/ops/kernels/device_functions.h"
#include "tenon/tensor/tensor.h"

namespace tenon::ops::vulkan {

// Queues target = function(inputs), which broadcast to it, on the current stream; `numbers` are the
// function's own, two of them, or null. One of two inputs may be a number: 0-d on the host. False,
// and nothing has happened, where there is no such kernel: other dtypes than f32, more than four
// dimensions that cannot be joined, 2^31 elements and more. Requires: a Vulkan device, and inputs
// that share no memory with the target unless they walk it alike.
bool elementwise(DeviceFunction function, const double* numbers, const Tensor& target,
                 std::initializer_list<const Tensor*> inputs);

// Strides of a matrix, in elements.
struct MatrixStrides {
  std::int64_t row = 0;
  std::int64_t column = 0;
  std::int64_t batch = 0;
};

// Queues target [batch, m, n], contiguous, = a b + beta target. False as above.
bool matmul(const Tensor& target, std::int64_t m, std::int64_t n, std::int64_t k, const Tensor& a,
            const MatrixStrides& a_strides, const Tensor& b, const MatrixStrides& b_strides,
            float beta);

}  // namespace tenon::ops::vulkan
