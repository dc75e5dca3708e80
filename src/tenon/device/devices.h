// Which devices this program can use.
#pragma once

#include <string>
#include <vector>

#include "tenon/device/device.h"

namespace tenon {

struct DeviceInfo {
  Device device;
  std::string line;  // what it is, for people
};

// The host first, the simulated device last.
std::vector<DeviceInfo> list_devices();

}  // namespace tenon
