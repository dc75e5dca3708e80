// Convolutions on a device, by products of matrices with kernels of its own.
#pragma once

#include "tenon/ops/kernels/vulkan/device_kernels.h"
#include "tenon/tensor/tensor.h"

namespace tenon::ops {

// Each computes on the device of `out`, which is contiguous, in its dtype; false, and nothing has
// happened, where the device has no kernel for that. Images become columns a part of the batch at a
// time. The weight is [filters, channels of a group, kernel]; without a bias it is undefined.

// out [n, filters, places] = the weight over the images a.
bool convolve_on_device(const Tensor& out, const Tensor& a, const Tensor& weight,
                        const Tensor& bias, const vulkan::Windows& w, std::int64_t groups);
// out, of the images' shape, = the transpose of that for the places a.
bool convolve_transposed_on_device(const Tensor& out, const Tensor& a, const Tensor& weight,
                                   const Tensor& bias, const vulkan::Windows& w,
                                   std::int64_t groups);
// out, of the weight's shape, = its gradient from that of the places.
bool correlate_on_device(const Tensor& out, const Tensor& gradient, const Tensor& a,
                         const vulkan::Windows& w, std::int64_t groups);

}  // namespace tenon::ops
