#include "tenon/device/devices.h"

#include <fmt/format.h>

#include "tenon/base/byte_size.h"
#include "tenon/device/cuda/cuda_backend.h"
#include "tenon/device/host/host_backend.h"
#if TENON_HAS_VULKAN
#include "tenon/device/vulkan/vulkan_backend.h"
#endif

namespace tenon {

namespace {

// The devices 0 to count - 1 of a kind, as backend_of(index) finds them.
template <typename BackendOf>
void add_devices(DeviceType type, int count, BackendOf&& backend_of,
                 std::vector<DeviceInfo>& devices) {
  for (int i = 0; i < count; ++i) {
    const Device device{type, static_cast<std::int16_t>(i)};
    try {
      const Backend& backend = backend_of(i);
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

std::string why_no_vulkan() {
#if TENON_HAS_VULKAN
  try {
    VulkanDriver::standard()->require_same_process();
    return "";
  } catch (const DeviceError& error) {
    return error.what();
  }
#else
  return "this was built without Vulkan's headers (Debian: libvulkan-dev)";
#endif
}

Backend* own_backend(Device device) {
  if (device.type == DeviceType::kCpu) return &host_backend();
  if (device.type == DeviceType::kCuda) return &cuda_backend(device.index);
#if TENON_HAS_VULKAN
  if (device.type == DeviceType::kVulkan) return &vulkan_backend(device.index);
#endif
  return nullptr;
}

std::vector<DeviceInfo> list_devices() {
  const HostBackend& host = host_backend();
  std::vector<DeviceInfo> devices = {
      {host.device(), fmt::format("{}, {} free", host.description(),
                                  format_byte_size(host.memory().free_bytes))}};
  if (why_no_cuda().empty())
    add_devices(DeviceType::kCuda, CudaDriver::standard()->device_count(), cuda_backend, devices);
#if TENON_HAS_VULKAN
  if (why_no_vulkan().empty())
    add_devices(DeviceType::kVulkan, VulkanDriver::standard()->device_count(), vulkan_backend,
                devices);
#endif
  devices.push_back({Device{DeviceType::kSim, 0},
                     "simulated device: any capacity, no memory needed, costs of one NVIDIA H200"});
  return devices;
}

}  // namespace tenon
