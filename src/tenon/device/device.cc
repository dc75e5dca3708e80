#include "tenon/device/device.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>
#include <vector>

#include "tenon/base/error.h"
#include "tenon/base/printable.h"

namespace tenon {
namespace {

// The names of all device types, built in and registered.
class DeviceNames {
 public:
  static DeviceNames& instance() {
    static DeviceNames& names = *new DeviceNames;  // a recording is written while the process ends
    return names;
  }

  DeviceType add(std::string_view name) {
    const std::lock_guard lock(mutex_);
    for (const auto& [type, known] : names_)
      if (known == name) return type;
    const bool well_formed = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    });
    if (!well_formed)
      raise<InvalidArgument>(
          "\"{}\" cannot name a device type: use lower-case letters, digits and '_'", name);
    if (next_ >= kMaxDeviceTypes)
      raise<InvalidArgument>("no room for device type \"{}\": {} are registered already", name,
                             names_.size());
    const auto type = static_cast<DeviceType>(next_++);
    names_[type] = name;
    return type;
  }

  std::string name(DeviceType type) const {
    const std::lock_guard lock(mutex_);
    const auto it = names_.find(type);
    return it == names_.end() ? fmt::format("device_type_{}", static_cast<int>(type)) : it->second;
  }

  std::vector<std::string> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> out;
    for (const auto& [type, name] : names_) out.push_back(name);
    return out;
  }

  bool find(std::string_view name, DeviceType* out) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [type, known] : names_)
      if (known == name) return *out = type, true;
    return false;
  }

 private:
  mutable std::mutex mutex_;
  std::map<DeviceType, std::string> names_ = {
      {DeviceType::kCpu, "cpu"},     {DeviceType::kCuda, "cuda"}, {DeviceType::kVulkan, "vulkan"},
      {DeviceType::kMetal, "metal"}, {DeviceType::kXla, "xla"},   {DeviceType::kSim, "sim"},
      {DeviceType::kMeta, "meta"}};
  int next_ = static_cast<int>(DeviceType::kFirstRegistered);
};

// Constant-initialised, so that threads without a guard are answered without touching the list.
constinit thread_local int guards_alive = 0;

// Current streams of this thread. Programs use few devices, so a flat list beats a map.
std::vector<Stream>& thread_streams() {
  thread_local std::vector<Stream> streams;
  return streams;
}

void set_current_stream(Stream stream) {
  for (Stream& s : thread_streams())
    if (s.device == stream.device) {
      s = stream;
      return;
    }
  thread_streams().push_back(stream);
}

}  // namespace

DeviceType register_device_type(std::string_view name) {
  return DeviceNames::instance().add(name);
}

std::string device_type_name(DeviceType type) { return DeviceNames::instance().name(type); }

Device parse_device(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  Device device;
  if (!DeviceNames::instance().find(name, &device.type))
    raise<InvalidArgument>("\"{}\" is no device: the kinds known are {}", one_line(text),
                           fmt::join(DeviceNames::instance().all(), ", "));
  if (colon == std::string_view::npos) return device;
  const std::string_view index = text.substr(colon + 1);
  const auto end = index.data() + index.size();
  const auto parsed = std::from_chars(index.data(), end, device.index);
  if (parsed.ec != std::errc() || parsed.ptr != end || device.index < 0)
    raise<InvalidArgument>(
        "\"{}\" is no device: after ':' comes an index such as 0 or 1, not \"{}\"", one_line(text),
        one_line(index));
  return device;
}

std::string to_string(Device device) {
  return fmt::format("{}:{}", device_type_name(device.type), device.index);
}

std::string to_string(Stream stream) {
  return fmt::format("{} stream {}", to_string(stream.device), stream.id);
}

Stream current_stream(Device device) {
  if (guards_alive == 0) [[likely]] return Stream{device, 0};
  for (const Stream& s : thread_streams())
    if (s.device == device) return s;
  return Stream{device, 0};
}

StreamGuard::StreamGuard(Stream stream) : previous_(current_stream(stream.device)) {
  ++guards_alive;
  set_current_stream(stream);
}

StreamGuard::~StreamGuard() {
  --guards_alive;
  set_current_stream(previous_);
}

}  // namespace tenon
