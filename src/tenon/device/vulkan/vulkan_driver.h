// Vulkan's loader and the devices it finds. O(devices).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tenon/base/error.h"

namespace tenon {

struct VulkanInstanceFunctions;

// A call of Vulkan that failed, as "vkQueueSubmit(vulkan:0 stream 1): VK_ERROR_DEVICE_LOST; ...".
class VulkanError : public DeviceError {
 public:
  VulkanError(const std::string& message, int result) : DeviceError(message), result_(result) {}

  int result() const { return result_; }  // a VkResult
  // Every later request to this device fails too.
  bool is_device_lost() const;

 private:
  int result_;
};

// Which loader, and whether its calls are checked.
struct VulkanDriverOptions {
  std::string loader = "libvulkan.so.1";  // its library
  // Khronos' validation layer checks every call: core rules, synchronization, best practices.
  bool validate = false;
  // Gets the layer's warnings and errors, one at a time; empty: they go to stderr.
  std::function<void(const std::string&)> on_message;
};

// The loader's library, an instance, and its physical devices. Immutable after open(), and so
// thread-safe. A forked child must not use what its parent opened.
class VulkanDriver {
 public:
  // Throws DeviceError with the remedy if there is no loader or device, or the loader is older than
  // Vulkan 1.2. Also if validation is asked for without its layer installed.
  static std::shared_ptr<const VulkanDriver> open(const VulkanDriverOptions& options);
  // The process's: the library that TENON_VULKAN_LOADER names, else libvulkan.so.1, with
  // validation where TENON_VULKAN_VALIDATION is 1. Opened once; a failure is thrown again at every
  // call. VK_DRIVER_FILES chooses among drivers, as for every program with Vulkan.
  static std::shared_ptr<const VulkanDriver> standard();

  ~VulkanDriver();
  VulkanDriver(const VulkanDriver&) = delete;
  VulkanDriver& operator=(const VulkanDriver&) = delete;

  // How many physical devices there are; vulkan:0 is the first.
  int device_count() const { return static_cast<int>(devices_.size()); }
  // What the layer has said so far.
  std::uint64_t validation_messages() const { return messages_; }

  // Throws DeviceError in a child that was forked after open().
  void require_same_process() const;
  bool is_same_process() const;

  // --- For the sources of device/vulkan/.
  const VulkanInstanceFunctions& functions() const { return *functions_; }
  void* physical_device(int index) const { return devices_[static_cast<std::size_t>(index)]; }

 private:
  explicit VulkanDriver(const VulkanDriverOptions& options);
  void create_instance();
  void find_devices();
  void take_message(const char* text) const;
  struct Callback;

  const VulkanDriverOptions options_;
  std::unique_ptr<VulkanInstanceFunctions> functions_;
  void* get_address_ = nullptr;  // vkGetInstanceProcAddr
  void* instance_ = nullptr;
  std::uint64_t messenger_ = 0;
  std::vector<void*> devices_;
  mutable std::atomic<std::uint64_t> messages_{0};
  unsigned forks_ = 0;
};

}  // namespace tenon
