// Operators of a device's tensors that the host computes. O(operators).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/device/device.h"

namespace tenon {

// Note [Fallback]. A device that shares its memory with the host may have no kernel for an
// operator. Then the host computes it in place, after a wait for queued work. That may be slow, so
// it is counted by operator. TENON_FALLBACK=error forbids it. Copies and fills count as operators.
struct HostFallback {
  std::string name;  // of the operator
  std::uint64_t calls = 0;
};

// Those of this process so far, the most frequent first. Thread-safe.
std::vector<HostFallback> fallbacks();

// Counts a call. Throws DeviceError where TENON_FALLBACK=error, and InvalidArgument where the host
// does not reach the device's memory, or a capture records. Thread-safe.
void note_fallback(const char* name, Device device);

}  // namespace tenon
