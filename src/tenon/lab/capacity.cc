#include "tenon/lab/capacity.h"

#include <algorithm>

#include "tenon/base/byte_size.h"

namespace tenon {

std::uint64_t search_capacity(std::uint64_t live_peak_bytes, std::uint64_t reserved_peak_bytes,
                              const std::function<bool(std::uint64_t)>& fits) {
  const std::uint64_t tolerance = std::max(8 * kMiB, live_peak_bytes / 500);
  std::uint64_t low = live_peak_bytes;
  std::uint64_t high = reserved_peak_bytes;
  while (high > low && high - low > tolerance) {
    const std::uint64_t middle = low + (high - low) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

std::uint64_t find_min_capacity(const Workload& workload, ReplaySetup setup,
                                std::uint64_t reserved_peak_bytes) {
  return search_capacity(workload.live_peak_bytes(), reserved_peak_bytes,
                         [&](std::uint64_t capacity_bytes) {
                           setup.capacity_bytes = capacity_bytes;
                           return fits(workload, setup);
                         });
}

}  // namespace tenon
