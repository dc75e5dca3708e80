#include "tenon/memory/stats.h"

#include <fmt/format.h>

namespace tenon {
namespace {

struct Family {
  const char* name;
  PoolStats AllocatorStats::*pools;
};
constexpr Family kFamilies[] = {{"allocation", &AllocatorStats::allocation},
                                {"segment", &AllocatorStats::segment},
                                {"active", &AllocatorStats::active},
                                {"inactive_split", &AllocatorStats::inactive_split},
                                {"allocated_bytes", &AllocatorStats::allocated_bytes},
                                {"reserved_bytes", &AllocatorStats::reserved_bytes},
                                {"active_bytes", &AllocatorStats::active_bytes},
                                {"inactive_split_bytes", &AllocatorStats::inactive_split_bytes},
                                {"requested_bytes", &AllocatorStats::requested_bytes}};

struct Number {
  const char* name;
  std::int64_t AllocatorStats::*value;
};
constexpr Number kNumbers[] = {{"num_alloc_retries", &AllocatorStats::num_alloc_retries},
                               {"num_ooms", &AllocatorStats::num_ooms},
                               {"num_device_alloc", &AllocatorStats::num_device_alloc},
                               {"num_device_free", &AllocatorStats::num_device_free},
                               {"num_sync_all_streams", &AllocatorStats::num_sync_all_streams}};

}  // namespace

std::vector<std::pair<std::string, std::int64_t>> AllocatorStats::named() const {
  constexpr std::array<const char*, 3> kPoolNames = {"all", "small_pool", "large_pool"};

  std::vector<std::pair<std::string, std::int64_t>> out;
  for (const Family& family : kFamilies)
    for (std::size_t p = 0; p < kPoolNames.size(); ++p) {
      const Stat& stat = (this->*family.pools)[p];
      const std::string prefix = fmt::format("{}.{}.", family.name, kPoolNames[p]);
      out.emplace_back(prefix + "current", stat.current);
      out.emplace_back(prefix + "peak", stat.peak);
      out.emplace_back(prefix + "allocated", stat.allocated);
      out.emplace_back(prefix + "freed", stat.freed());
    }
  for (const Number& number : kNumbers) out.emplace_back(number.name, this->*number.value);
  return out;
}

AllocatorStats& AllocatorStats::operator+=(const AllocatorStats& other) {
  for (const Family& family : kFamilies)
    for (std::size_t pool = 0; pool < (this->*family.pools).size(); ++pool)
      (this->*family.pools)[pool] += (other.*family.pools)[pool];
  for (const Number& number : kNumbers) this->*number.value += other.*number.value;
  return *this;
}

void reset_peaks(AllocatorStats& stats) {
  for (const Family& family : kFamilies)
    for (Stat& stat : stats.*family.pools) stat.peak = stat.current;
}

}  // namespace tenon
