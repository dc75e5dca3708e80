#include "tenon/device/devices.h"

#include <fmt/format.h>

#include "tenon/base/byte_size.h"
#include "tenon/device/host/host_backend.h"

namespace tenon {

std::vector<DeviceInfo> list_devices() {
  const HostBackend& host = host_backend();
  return {
      {host.device(), fmt::format("{}, {} free", host.description(),
                                  format_byte_size(host.memory().free_bytes))},
      {Device{DeviceType::kSim, 0},
       "simulated device: any capacity, no memory needed, costs of one NVIDIA H200"},
  };
}

}  // namespace tenon
