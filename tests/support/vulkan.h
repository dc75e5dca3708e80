// Real drivers of Vulkan that need no GPU, under Khronos' validation layer.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tenon/device/vulkan/vulkan_backend.h"

namespace tenon::testing {

// The device that the tests choose.
inline constexpr Device kVulkan{DeviceType::kVulkan, 0};

struct VulkanDriverFile {
  std::string name;
  std::string file;
};

// Those that are installed: lavapipe (Debian's mesa-vulkan-drivers), SwiftShader (in chromium).
inline std::vector<VulkanDriverFile> vulkan_drivers() {
  std::vector<VulkanDriverFile> found;
  for (const VulkanDriverFile& each :
       {VulkanDriverFile{"lavapipe", "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json"},
        VulkanDriverFile{"lavapipe", "/usr/share/vulkan/icd.d/lvp_icd.aarch64.json"},
        VulkanDriverFile{"lavapipe", "/usr/share/vulkan/icd.d/lvp_icd.json"},
        VulkanDriverFile{"swiftshader", "/usr/lib/chromium/vk_swiftshader_icd.json"}})
    if (std::filesystem::exists(each.file)) found.push_back(each);
  return found;
}

// The process's own device is the first driver's unless VK_DRIVER_FILES says otherwise, under the
// validation layer. Before its first use.
inline void choose_process_device() {
  const auto drivers = vulkan_drivers();
  ASSERT_FALSE(drivers.empty()) << "install mesa-vulkan-drivers (make setup does)";
  ::setenv("VK_DRIVER_FILES", drivers.front().file.c_str(), 0);
  ::setenv("TENON_VULKAN_VALIDATION", "1", 1);
}

// LeakSanitizer knows a driver's leaks by its file (lsan_suppressions.txt) while that is loaded.
inline void keep_drivers_loaded() {
#ifdef __SANITIZE_ADDRESS__
  for (const char* name :
       {"libvulkan_lvp.so", "libvk_swiftshader.so", "libVkLayer_khronos_validation.so"})
    ::dlopen(name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
#endif
}

// One such driver, checked at its end: the layer has said nothing. What was made by it goes first.
class Vulkan {
 public:
  explicit Vulkan(const std::string& name, std::string loader = "libvulkan.so.1") {
    for (const VulkanDriverFile& each : vulkan_drivers())
      if (each.name == name) ::setenv("VK_DRIVER_FILES", each.file.c_str(), 1);
    VulkanDriverOptions options;
    options.loader = std::move(loader);
    options.validate = true;
    options.on_message = [this](const std::string& message) {
      const std::lock_guard lock(mutex_);
      if (messages_.size() < 5) messages_.push_back(message);
    };
    driver_ = VulkanDriver::open(options);
    keep_drivers_loaded();
  }
  ~Vulkan() {
    driver_.reset();
    for (const std::string& message : messages_) ADD_FAILURE() << message;
  }
  Vulkan(const Vulkan&) = delete;
  Vulkan& operator=(const Vulkan&) = delete;

  const std::shared_ptr<const VulkanDriver>& driver() const { return driver_; }
  std::unique_ptr<VulkanBackend> backend(const VulkanOptions& options = {}) const {
    return std::make_unique<VulkanBackend>(driver_, 0, options);
  }

 private:
  std::shared_ptr<const VulkanDriver> driver_;
  std::mutex mutex_;
  std::vector<std::string> messages_;
};

}  // namespace tenon::testing
