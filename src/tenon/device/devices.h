// Which devices this program can use.
#pragma once

#include <string>
#include <vector>

#include "tenon/device/backend.h"
#include "tenon/device/device.h"

namespace tenon {

// A device that was found.
struct DeviceInfo {
  Device device;
  std::string line;  // what it is, for people
};

// The host first, then GPUs, the simulated device last.
std::vector<DeviceInfo> list_devices();

// The process's backend for the device: host_backend(), cuda_backend(i), vulkan_backend(i). Null
// for other kinds. Throws DeviceError where there is no such device. Thread-safe; O(1).
Backend* own_backend(Device device);

// Why there is no CUDA device, in one line; empty when there is one. The same of Vulkan.
std::string why_no_cuda();
std::string why_no_vulkan();

}  // namespace tenon
