// The smallest device that a workload fits on. Thread-safe as far as `fits` is. Throws what `fits`
// throws. find_min_capacity throws InvalidArgument for a policy or a setting that does not exist,
// and Interrupted where the thread's work is asked to stop. At most ceil(log2((high - low) / step))
// tries, of O(events) each.
#pragma once

#include <cstdint>
#include <functional>

#include "tenon/lab/replayer.h"

namespace tenon {

// Bisects between low = `live_peak_bytes` and high = `reserved_peak_bytes` at the middle until they
// are max(8 MiB, live peak / 500) apart or closer. A capacity that fits becomes high, any other
// low. Returns high. Success need not be monotone in capacity (an allocator may pass at 2.6 GiB,
// fail at 3.3 and pass at 3.5). So the answer depends on the search. The peers' figures were made
// with this one.
std::uint64_t search_capacity(std::uint64_t live_peak_bytes, std::uint64_t reserved_peak_bytes,
                              const std::function<bool(std::uint64_t capacity_bytes)>& fits);

// That search with a fresh device and policy for every try.
std::uint64_t find_min_capacity(const Workload& workload, ReplaySetup setup,
                                std::uint64_t reserved_peak_bytes);

}  // namespace tenon
