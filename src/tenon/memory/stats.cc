#include "tenon/memory/stats.h"

#include <fmt/format.h>

#include <utility>

namespace tenon {
namespace {

template <typename T>
using Named = std::pair<const char*, T AllocatorStats::*>;

constexpr Named<PoolStats> kFamilies[] = {
    {"allocation", &AllocatorStats::allocation},
    {"segment", &AllocatorStats::segment},
    {"active", &AllocatorStats::active},
    {"inactive_split", &AllocatorStats::inactive_split},
    {"allocated_bytes", &AllocatorStats::allocated_bytes},
    {"reserved_bytes", &AllocatorStats::reserved_bytes},
    {"active_bytes", &AllocatorStats::active_bytes},
    {"inactive_split_bytes", &AllocatorStats::inactive_split_bytes},
    {"requested_bytes", &AllocatorStats::requested_bytes}};

constexpr Named<Stat> kSingles[] = {
    {"oversize_allocations", &AllocatorStats::oversize_allocations},
    {"oversize_segments", &AllocatorStats::oversize_segments}};

constexpr Named<std::int64_t> kNumbers[] = {
    {"num_alloc_retries", &AllocatorStats::num_alloc_retries},
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
  for (const auto& [name, pools] : kFamilies)
    for (std::size_t p = 0; p < kPoolNames.size(); ++p)
      add(fmt::format("{}.{}", name, kPoolNames[p]), (this->*pools)[p]);
  for (const auto& [name, stat] : kSingles) add(name, this->*stat);
  for (const auto& [name, number] : kNumbers) out.emplace_back(name, this->*number);
  return out;
}

AllocatorStats& AllocatorStats::operator+=(const AllocatorStats& other) {
  for (const auto& [name, pools] : kFamilies)
    for (std::size_t p = 0; p < (this->*pools).size(); ++p)
      (this->*pools)[p] += (other.*pools)[p];
  for (const auto& [name, stat] : kSingles) this->*stat += other.*stat;
  for (const auto& [name, number] : kNumbers) this->*number += other.*number;
  return *this;
}

void reset_peaks(AllocatorStats& stats) {
  for (const auto& [name, pools] : kFamilies)
    for (Stat& stat : stats.*pools) stat.peak = stat.current;
  for (const auto& [name, stat] : kSingles) (stats.*stat).peak = (stats.*stat).current;
}

}  // namespace tenon
