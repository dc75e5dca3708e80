#include "tenon/tensor/host_access.h"

#include "tenon/device/devices.h"

namespace tenon {

bool detail::host_reaches_memory_of(Device device) {
  if (device.type != DeviceType::kVulkan) return false;
  const Backend* backend = own_backend(device);
  return backend != nullptr && backend->limits().unified;
}

void wait_for_device(Device device) {
  if (device.type == DeviceType::kVulkan) own_backend(device)->synchronize();
}

}  // namespace tenon
