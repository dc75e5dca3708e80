#include "tenon/memory/stats.h"

#include <fmt/format.h>

namespace tenon {

std::vector<std::pair<std::string, std::int64_t>> AllocatorStats::named() const {
  const std::array<std::pair<const char*, const PoolStats*>, 9> families = {
      {{"allocation", &allocation},
       {"segment", &segment},
       {"active", &active},
       {"inactive_split", &inactive_split},
       {"allocated_bytes", &allocated_bytes},
       {"reserved_bytes", &reserved_bytes},
       {"active_bytes", &active_bytes},
       {"inactive_split_bytes", &inactive_split_bytes},
       {"requested_bytes", &requested_bytes}}};
  constexpr std::array<const char*, 3> kPools = {"all", "small_pool", "large_pool"};

  std::vector<std::pair<std::string, std::int64_t>> out;
  for (const auto& [family, pools] : families)
    for (std::size_t p = 0; p < kPools.size(); ++p) {
      const Stat& stat = (*pools)[p];
      const std::string prefix = fmt::format("{}.{}.", family, kPools[p]);
      out.emplace_back(prefix + "current", stat.current);
      out.emplace_back(prefix + "peak", stat.peak);
      out.emplace_back(prefix + "allocated", stat.allocated);
      out.emplace_back(prefix + "freed", stat.freed());
    }
  out.emplace_back("num_alloc_retries", num_alloc_retries);
  out.emplace_back("num_ooms", num_ooms);
  out.emplace_back("num_device_alloc", num_device_alloc);
  out.emplace_back("num_device_free", num_device_free);
  out.emplace_back("num_sync_all_streams", num_sync_all_streams);
  return out;
}

void reset_peaks(AllocatorStats& stats) {
  for (PoolStats* pools :
       {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split,
        &stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes,
        &stats.inactive_split_bytes, &stats.requested_bytes})
    for (Stat& stat : *pools) stat.peak = stat.current;
}

}  // namespace tenon
