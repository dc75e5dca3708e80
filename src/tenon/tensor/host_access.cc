#include "tenon/tensor/host_access.h"

#include "tenon/device/devices.h"
#include "tenon/tensor/kernels/vulkan/capturing.h"
#include "tenon/tensor/kernels/vulkan/complaints.h"

namespace tenon {

bool detail::is_own_vulkan(Device device) {
  return device.type == DeviceType::kVulkan && own_backend(device) != nullptr;
}

bool detail::host_reaches_memory_of(Device device) {
  return is_own_vulkan(device) && own_backend(device)->limits().unified;
}

void wait_for_device(Device device, const void* data) {
  if (device.type != DeviceType::kVulkan) return;
  vulkan::refuse_host_in_capture(device, "a tensor's values");
  own_backend(device)->synchronize();
  vulkan::raise_complaint(device.index);
  vulkan::require_memory(device, data);
}

}  // namespace tenon
