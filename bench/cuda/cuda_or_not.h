// For programs that need a GPU: the driver, or a line that says why they do nothing.
#pragma once

#include <fmt/format.h>

#include <memory>

#include "tenon/device/cuda/cuda_driver.h"

namespace tenon::bench {

// Null, and a line on stdout, where there is no device. Such a run is skipped, not failed.
inline std::shared_ptr<const CudaDriver> cuda_or_not(const char* program) {
  try {
    return CudaDriver::standard();
  } catch (const DeviceError& error) {
    fmt::print("{}: skipped: {}\n", program, error.what());
    return nullptr;
  }
}

}  // namespace tenon::bench
