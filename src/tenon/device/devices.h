// Which devices this program can use.
#pragma once

#include <string>
#include <vector>

#include "tenon/device/device.h"

namespace tenon {

// A device that was found.
struct DeviceInfo {
  Device device;
  std::string line;  // what it is, for people
};

// The host first, then GPUs, the simulated device last.
std::vector<DeviceInfo> list_devices();

// Why there is no CUDA device, in one line; empty when there is one.
std::string why_no_cuda();

}  // namespace tenon
