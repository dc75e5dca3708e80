#include "tenon/tensor/fallback.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "tenon/base/environment.h"
#include "tenon/base/error.h"
#include "tenon/tensor/host_access.h"
#include "tenon/tensor/kernels/vulkan/capturing.h"

namespace tenon {
namespace {

std::mutex mutex;

std::map<std::string, std::uint64_t>& counts() {
  static auto& made = *new std::map<std::string, std::uint64_t>();
  return made;
}

bool is_forbidden() {
  static const bool forbidden = environment_value("TENON_FALLBACK") == "error";
  return forbidden;
}

}  // namespace

std::vector<HostFallback> fallbacks() {
  std::vector<HostFallback> all;
  {
    const std::lock_guard lock(mutex);
    for (const auto& [name, calls] : counts()) all.push_back({name, calls});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const HostFallback& a, const HostFallback& b) { return a.calls > b.calls; });
  return all;
}

void note_fallback(const char* name, Device device) {
  vulkan::refuse_host_in_capture(device, name);
  if (!host_reaches(device))
    throw InvalidArgument(fmt::format("{}: {} has no kernel for it, and the host does not reach "
                                      "its memory; copy the tensors to the cpu",
                                      name, to_string(device)));
  if (is_forbidden())
    throw DeviceError(fmt::format("{}: {} has no kernel for it, and TENON_FALLBACK=error forbids "
                                  "the host; unset it, or move the tensors to the cpu",
                                  name, to_string(device)));
  const std::lock_guard lock(mutex);
  ++counts()[name];
}

}  // namespace tenon
