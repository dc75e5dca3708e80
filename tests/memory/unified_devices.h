// Simulated devices for the tests of the unified allocator.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "tenon/base/byte_size.h"
#include "tenon/device/sim/sim_backend.h"

namespace tenon {

inline SimOptions unified_device(std::uint64_t capacity = kGiB, std::uint64_t lag_ns = 0) {
  SimOptions options;
  options.capacity_bytes = capacity;
  options.real_memory = true;
  options.unified = true;
  options.lag_ns = lag_ns;
  return options;
}

inline SimOptions fake_device(std::uint64_t capacity = 64 * kGiB, std::uint64_t lag_ns = 0) {
  SimOptions options;
  options.capacity_bytes = capacity;
  options.lag_ns = lag_ns;
  return options;
}

// Kinds of memory that UnifiedMemories and MemoryPoolTest try besides their own, by name: what
// makes a backend. Added before main.
inline std::map<std::string, std::function<std::shared_ptr<Backend>()>>& more_memories() {
  static std::map<std::string, std::function<std::shared_ptr<Backend>()>> more;
  return more;
}

}  // namespace tenon
