#include "tenon/device/devices.h"

#include <fmt/format.h>

#include "tenon/base/byte_size.h"
#include "tenon/device/cuda/cuda_backend.h"
#include "tenon/device/host/host_backend.h"

namespace tenon {

namespace {

void add_cuda_devices(std::vector<DeviceInfo>& devices) {
  if (!why_no_cuda().empty()) return;
  for (int i = 0; i < CudaDriver::standard()->device_count(); ++i) {
    const Device device{DeviceType::kCuda, static_cast<std::int16_t>(i)};
    try {
      const CudaBackend& backend = cuda_backend(i);
      devices.push_back({device, fmt::format("{}, {} free", backend.description(),
                                             format_byte_size(backend.memory().free_bytes))});
    } catch (const DeviceError& error) {  // it is there; whether it works is another question
      devices.push_back({device, fmt::format("cannot be used: {}", error.what())});
    }
  }
}

}  // namespace

std::string why_no_cuda() {
  try {
    CudaDriver::standard()->require_same_process();
    return "";
  } catch (const DeviceError& error) {
    return error.what();
  }
}

std::vector<DeviceInfo> list_devices() {
  const HostBackend& host = host_backend();
  std::vector<DeviceInfo> devices = {
      {host.device(), fmt::format("{}, {} free", host.description(),
                                  format_byte_size(host.memory().free_bytes))}};
  add_cuda_devices(devices);
  devices.push_back({Device{DeviceType::kSim, 0},
                     "simulated device: any capacity, no memory needed, costs of one NVIDIA H200"});
  return devices;
}

}  // namespace tenon
