#include "tenon/tensor/kernels/vulkan/complaints.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "tenon/base/error.h"

namespace tenon::vulkan {
namespace {

struct Complaint {
  std::uint32_t there, what, low, high, size;
};

std::mutex mutex;
std::atomic<bool> any_made{false};

std::map<int, Segment>& segments() {
  static auto& made = *new std::map<int, Segment>();
  return made;
}
std::vector<const char*>& names() {
  static auto& made = *new std::vector<const char*>();
  return made;
}

}  // namespace

std::uint64_t complaint_address(VulkanBackend& backend) {
  const std::lock_guard lock(mutex);
  auto found = segments().find(backend.device().index);
  if (found == segments().end()) {
    const auto made = backend.allocate_segment(sizeof(Complaint), MemoryKind::kPinned);
    if (!made)
      throw DeviceError(fmt::format("{}: no {} bytes for the complaints of its kernels",
                                    to_string(backend.device()), sizeof(Complaint)));
    std::memset(made->host, 0, sizeof(Complaint));
    found = segments().emplace(backend.device().index, *made).first;
    any_made = true;
  }
  return backend.device_address(found->second.base);
}

std::uint32_t complaint_number(const char* what) {
  const std::lock_guard lock(mutex);
  const auto found = std::find(names().begin(), names().end(), what);
  const auto number = static_cast<std::uint32_t>(found - names().begin());
  if (found == names().end()) names().push_back(what);
  return number;
}

void raise_complaint(int device_index) {
  if (!any_made) return;
  Complaint told = {};
  const char* what = "";
  {
    const std::lock_guard lock(mutex);
    const auto found = segments().find(device_index);
    if (found == segments().end()) return;
    std::memcpy(&told, found->second.host, sizeof told);
    if (told.there == 0) return;
    std::memset(found->second.host, 0, sizeof told);
    what = names().at(told.what);
  }
  const auto index = static_cast<std::int64_t>(std::uint64_t{told.high} << 32 | told.low);
  throw InvalidArgument(fmt::format("{}: index {} for a dimension of size {}", what, index,
                                    told.size));
}

}  // namespace tenon::vulkan
