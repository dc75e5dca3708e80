#include "tenon/memory/stats.h"

#include <fmt/format.h>

#include <utility>

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

constexpr std::pair<const char*, Stat AllocatorStats::*> kSingles[] = {
    {"oversize_allocations", &AllocatorStats::oversize_allocations},
    {"oversize_segments", &AllocatorStats::oversize_segments}};

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
  const auto add = [&](const std::string& name, const Stat& stat) {
    out.emplace_back(name + ".current", stat.current);
    out.emplace_back(name + ".peak", stat.peak);
    out.emplace_back(name + ".allocated", stat.allocated);
    out.emplace_back(name + ".freed", stat.freed());
  };
  for (const Family& family : kFamilies)
    for (std::size_t p = 0; p < kPoolNames.size(); ++p)
      add(fmt::format("{}.{}", family.name, kPoolNames[p]), (this->*family.pools)[p]);
  for (const auto& [name, stat] : kSingles) add(name, this->*stat);
  for (const Number& number : kNumbers) out.emplace_back(number.name, this->*number.value);
  return out;
}

AllocatorStats& AllocatorStats::operator+=(const AllocatorStats& other) {
  for (const Family& family : kFamilies)
    for (std::size_t pool = 0; pool < (this->*family.pools).size(); ++pool)
      (this->*family.pools)[pool] += (other.*family.pools)[pool];
  for (const auto& [name, stat] : kSingles) this->*stat += other.*stat;
  for (const Number& number : kNumbers) this->*number.value += other.*number.value;
  return *this;
}

void reset_peaks(AllocatorStats& stats) {
  for (const Family& family : kFamilies)
    for (Stat& stat : stats.*family.pools) stat.peak = stat.current;
  for (const auto& [name, stat] : kSingles) (stats.*stat).peak = (stats.*stat).current;
}

}  // namespace tenon
