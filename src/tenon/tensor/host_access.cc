#include "tenon/tensor/host_access.h"

#include "tenon/device/devices.h"
#include "tenon/tensor/kernels/vulkan/capturing.h"
#include "tenon/tensor/kernels/vulkan/complaints.h"

namespace tenon {

bool detail::host_reaches_memory_of(Device device) {
  if (device.type != DeviceType::kVulkan) return false;
  const Backend* backend = own_backend(device);
  return backend != nullptr && backend->limits().unified;
}

void wait_for_device(Device device) {
  if (device.type != DeviceType::kVulkan) return;
  vulkan::refuse_host_in_capture(device, "a tensor's values");
  own_backend(device)->synchronize();
  vulkan::raise_complaint(device.index);
}

}  // namespace tenon
