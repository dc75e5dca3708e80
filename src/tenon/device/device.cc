#include "tenon/device/device.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tenon/base/error.h"
#include "tenon/base/printable.h"

namespace tenon {
namespace {

// The names of all device types by their value; nullptr where none is. Read without a lock and
// never freed: a child of fork and a process that ends still name devices in their messages.
constinit std::array<std::atomic<const std::string*>, kMaxDeviceTypes> registered_names = {};

constexpr std::array kOwnNames = {"cpu", "cuda", "vulkan", "metal", "xla", "sim", "meta"};

// The name of a value, empty where none is.
std::string_view name_of(int type) {
  if (type < static_cast<int>(kOwnNames.size())) return kOwnNames[type];
  const std::string* const name = type < kMaxDeviceTypes ? registered_names[type].load() : nullptr;
  return name == nullptr ? std::string_view() : *name;
}

std::vector<std::string_view> all_names() {
  std::vector<std::string_view> names;
  for (int type = 0; type < kMaxDeviceTypes; ++type)
    if (!name_of(type).empty()) names.push_back(name_of(type));
  return names;
}

std::optional<DeviceType> find_type(std::string_view name) {
  for (int type = 0; !name.empty() && type < kMaxDeviceTypes; ++type)
    if (name_of(type) == name) return static_cast<DeviceType>(type);
  return std::nullopt;
}

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
  const bool well_formed = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
  if (!well_formed)
    raise<InvalidArgument>(
        "\"{}\" cannot name a device type: use lower-case letters, digits and '_'", name);
  if (const auto known = find_type(name)) return *known;
  auto added = std::make_unique<const std::string>(name);
  for (int type = static_cast<int>(DeviceType::kFirstRegistered); type < kMaxDeviceTypes; ++type) {
    const std::string* taken = nullptr;
    if (registered_names[type].compare_exchange_strong(taken, added.get())) {
      added.release();
      return static_cast<DeviceType>(type);
    }
    if (*taken == name) return static_cast<DeviceType>(type);
  }
  raise<InvalidArgument>("no room for device type \"{}\": {} are registered already", name,
                         all_names().size());
}

std::string device_type_name(DeviceType type) {
  const std::string_view name = name_of(static_cast<int>(type));
  return name.empty() ? fmt::format("device_type_{}", static_cast<int>(type)) : std::string(name);
}

Device parse_device(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  Device device;
  const auto type = find_type(name);
  if (!type)
    raise<InvalidArgument>("\"{}\" is no device: the kinds known are {}", one_line(text),
                           fmt::join(all_names(), ", "));
  device.type = *type;
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
