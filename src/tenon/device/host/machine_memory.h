// How much memory this process may use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tenon {

struct MemoryBudget {
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
};

// The machine's memory, or the control group's share of it where that is less. What the group's
// own file cache occupies counts as used, so free_bytes is a lower bound.
MemoryBudget machine_memory();

// The tightest limit that control groups set, versions 1 and 2, from the process's group up to
// the root. `mount` is where the groups are mounted (/sys/fs/cgroup), `membership` the text of
// /proc/self/cgroup. Nothing: there is no limit.
std::optional<MemoryBudget> cgroup_memory(const std::string& mount, const std::string& membership);

}  // namespace tenon
