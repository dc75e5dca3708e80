#include "tenon/device/host/machine_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tenon/device/os/os_memory.h"

namespace tenon {
namespace {

// What can be read of it; an error of the system ends the text and throws nothing.
std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// A file with one number; nothing when it is absent or says "max".
std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// One group's own limit and those of all groups around it.
void tighten(std::optional<MemoryBudget>& budget, const std::string& mount, std::string group,
             const char* limit_file, const char* usage_file) {
  // Version 1 writes the absence of a limit as the largest multiple of the page size.
  constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62;
  for (;;) {
    const std::string folder = mount + group + "/";
    const auto limit = read_number(folder + limit_file);
    if (limit && *limit < kNoLimit) {
      const std::uint64_t used = read_number(folder + usage_file).value_or(0);
      if (!budget) budget = MemoryBudget{*limit, *limit};
      budget->total_bytes = std::min(budget->total_bytes, *limit);
      budget->free_bytes = std::min(budget->free_bytes, *limit - std::min(*limit, used));
    }
    if (group.empty()) return;
    group.erase(group.rfind('/'));
  }
}

bool lists(const std::string& controllers, const std::string& name) {
  std::istringstream in(controllers);
  for (std::string one; std::getline(in, one, ',');)
    if (one == name) return true;
  return false;
}

std::optional<std::uint64_t> meminfo_bytes(const std::string& text, const std::string& key) {
  const std::size_t at = text.find(key + ":");
  if (at == std::string::npos) return std::nullopt;
  std::istringstream in(text.substr(at + key.size() + 1));
  std::uint64_t kib = 0;
  if (in >> kib) return kib * 1024;
  return std::nullopt;
}

}  // namespace

std::optional<MemoryBudget> cgroup_memory(const std::string& mount, const std::string& membership) {
  std::optional<MemoryBudget> budget;
  std::istringstream lines(membership);
  for (std::string line; std::getline(lines, line);) {  // id:controllers:/group
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || second + 1 >= line.size() || line[second + 1] != '/')
      continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string group = line.substr(second + 1);
    if (group == "/") group.clear();
    if (controllers.empty())
      tighten(budget, mount, group, "memory.max", "memory.current");
    else if (lists(controllers, "memory"))
      tighten(budget, mount + "/memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes");
  }
  return budget;
}

MemoryBudget machine_memory() {
  MemoryBudget budget;
  budget.total_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * os::page_size();
  const std::string meminfo = read_text("/proc/meminfo");
  budget.free_bytes = meminfo_bytes(meminfo, "MemAvailable")
                          .value_or(static_cast<std::uint64_t>(::sysconf(_SC_AVPHYS_PAGES)) *
                                    os::page_size());
  if (const auto group = cgroup_memory("/sys/fs/cgroup", read_text("/proc/self/cgroup"))) {
    budget.total_bytes = std::min(budget.total_bytes, group->total_bytes);
    budget.free_bytes = std::min(budget.free_bytes, group->free_bytes);
  }
  return budget;
}

}  // namespace tenon
