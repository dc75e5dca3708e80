// Which device, and which of its streams. O(1), and O(devices) while a StreamGuard lives.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace tenon {

// The kinds of device. Values up to kMaxDeviceTypes - 1 may be registered at run time by third
// parties (register_device_type); the named ones are Tenon's own.
enum class DeviceType : std::uint8_t {
  kCpu = 0,
  kCuda,
  kVulkan,
  kMetal,  // PyTorch's "mps"
  kXla,
  kSim,   // the simulated device
  kMeta,  // shapes without memory
  kFirstRegistered = 16,
};
inline constexpr int kMaxDeviceTypes = 64;

// A name for a new kind of device, for a backend that Tenon does not know. Returns the same value
// when the name is known already. Throws InvalidArgument when the name is not lower-case letters,
// digits and '_', or when no value is left. Thread-safe.
DeviceType register_device_type(std::string_view name);

// The name that parse_device knows, such as "cuda". A kind that was never registered is named by
// its value: "device_type_40". Takes no lock, so a child of fork can call it.
std::string device_type_name(DeviceType type);

// One device: its kind, and which of that kind.
struct Device {
  DeviceType type = DeviceType::kCpu;
  std::int16_t index = 0;

  friend auto operator<=>(const Device&, const Device&) = default;
};

// "cuda:1"; "cpu" means index 0. Throws InvalidArgument, listing the known kinds.
Device parse_device(std::string_view text);
std::string to_string(Device device);

// A stream is a small dense number that its backend handed out; 0 is the device's default stream.
// How a number maps to a driver's stream is the backend's affair.
struct Stream {
  Device device;
  std::uint32_t id = 0;

  friend auto operator<=>(const Stream&, const Stream&) = default;
};

// "cuda:1 stream 3".
std::string to_string(Stream stream);

// The stream that the calling thread works on; the default stream until a guard says otherwise.
Stream current_stream(Device device);

// Makes `stream` current for this thread and its device until the guard ends. Guards nest.
class StreamGuard {
 public:
  explicit StreamGuard(Stream stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream previous_;
};

}  // namespace tenon

template <>
struct std::hash<tenon::Device> {
  std::size_t operator()(tenon::Device d) const {
    return static_cast<std::size_t>(d.type) * 65536 + static_cast<std::uint16_t>(d.index);
  }
};
