// Copies and element-wise functions on Vulkan devices. What is not taken runs on the host, in the
// memory that both share (Note [Host access] in tensor/host_access.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tenon/device/vulkan/vulkan_backend.h"
#include "tenon/tensor/device_functions.h"
#include "tenon/tensor/scalar.h"
#include "tenon/tensor/tensor.h"

namespace tenon::vulkan {

inline bool holds(const Tensor& t) { return t.device().type == DeviceType::kVulkan; }

// Queues target = function(inputs), which broadcast to it, on the current stream. It computes in
// `compute`; a bool stands for the inputs' truth. `numbers` are the function's own, two of them, or
// null. Inputs may be numbers, 0-d on the host, where the function has none of its own; not all.
// False, and nothing has happened, where there is no such kernel: complex numbers and dtypes for
// storage, what the device has no arithmetic for, 2^31 elements and more. Requires: a Vulkan
// device, and inputs that share no memory with the target unless they walk it alike.
bool elements(DeviceFunction function, DType compute, const double* numbers, const Tensor& target,
              std::span<const Tensor* const> inputs);

// The same for a copy from a tensor of the device that shares no memory with it, and for a number.
bool copy(const Tensor& target, const Tensor& source);
bool fill(const Tensor& target, const Scalar& value);

// A copy in which the dimensions whose bits are set run backwards.
bool flip(const Tensor& target, const Tensor& source, std::uint64_t flipped);

// A copy of the part of the last two dimensions below (or above) a diagonal, zero elsewhere, into
// a contiguous target.
bool triangle(const Tensor& target, const Tensor& source, bool is_lower, std::int64_t diagonal);

// --- For other kernels.
// Where the device finds the first element, in stream order.
std::uint64_t address_to_write(VulkanBackend& backend, const Tensor& t);
std::uint64_t address_to_read(VulkanBackend& backend, const Tensor& t);

// The same as VulkanBackend::texel_at and launch take it.
const void* place_to_read(const Tensor& t);

// Queues `groups` of a kernel on the device's current stream.
template <typename Arguments>
void launch(VulkanBackend& backend, const VulkanKernel& kernel, const Arguments& arguments,
            const std::array<std::uint32_t, 3>& groups,
            const std::array<const void*, 2>& texels = {}) {
  backend.launch(kernel, std::as_bytes(std::span(&arguments, 1)), groups,
                 current_stream(backend.device()), texels);
}

}  // namespace tenon::vulkan
