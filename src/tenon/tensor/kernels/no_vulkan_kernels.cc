// Without glslc, or Vulkan's headers, no device has kernels.
#if !TENON_HAS_VULKAN_KERNELS

#include <fmt/format.h>

#include "tenon/base/error.h"
#include "tenon/tensor/capture.h"
#include "tenon/tensor/kernels/vulkan/capturing.h"
#include "tenon/tensor/kernels/vulkan/complaints.h"
#include "tenon/tensor/kernels/vulkan/elements.h"
#include "tenon/tensor/kernels/vulkan/random_numbers.h"

namespace tenon::vulkan {

bool elements(DeviceFunction, DType, const double*, const Tensor&, std::span<const Tensor* const>) {
  return false;
}
bool copy(const Tensor&, const Tensor&) { return false; }
bool fill(const Tensor&, const Scalar&) { return false; }
bool triangle(const Tensor&, const Tensor&, bool, std::int64_t) { return false; }
bool random_numbers(RandomKind, double, double, const Tensor&, Generator&, std::uint64_t) {
  return false;
}
void raise_complaint(int) {}
bool is_captured(Device) { return false; }
void refuse_host_in_capture(Device, const char*) {}
void refuse_other_memory(Device, const void*, std::size_t) {}
void require_memory(Device, const void*) {}
struct CaptureState {};

}  // namespace tenon::vulkan

namespace tenon {

Capture::Capture(Device device, const std::function<void()>&, const Plan*) {
  throw InvalidArgument(
      fmt::format("Capture: Tenon was built without kernels for {}; install glslc and Vulkan's "
                  "headers and build it again",
                  to_string(device)));
}
void Capture::rehearse(Device device, const std::function<void(DeviceAllocator&)>&) {
  Capture(device, {});
}
Capture::~Capture() = default;
void Capture::run() {}
std::uint64_t Capture::reserved_bytes() const { return 0; }

}  // namespace tenon

#endif
