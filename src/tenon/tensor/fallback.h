// Operators of a device's tensors that the host computes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/device/device.h"

namespace tenon {

// Note [Fallback]. If a device that shares its memory with the host has no kernel for an operator,
// the host computes it in place, after a wait for queued work. That is right and may be slow, so it
// is counted by operator. TENON_FALLBACK=error forbids it. Copies and fills count as operators.
struct HostFallback {
  std::string name;  // of the operator
  std::uint64_t calls = 0;
};

// Those of this process so far, the most frequent first. Thread-safe.
std::vector<HostFallback> fallbacks();

// Counts a call. Throws DeviceError where TENON_FALLBACK=error. Thread-safe.
void note_fallback(const char* name, Device device);

}  // namespace tenon
