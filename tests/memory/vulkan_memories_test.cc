// The memory of Vulkan devices, for the tests of the MPS and MLX interfaces (UnifiedMemories) and
// of MemoryPool.
#include <memory>
#include <string>

#include "memory/unified_devices.h"
#include "support/vulkan.h"

namespace tenon {
namespace {

// The backend goes before its driver, which then checks that the validation layer said nothing.
struct OnDriver {
  explicit OnDriver(const std::string& name) : vulkan(name), backend(vulkan.backend()) {}
  testing::Vulkan vulkan;
  std::unique_ptr<VulkanBackend> backend;
};

const bool added = [] {
  // Not SwiftShader: its largest allocation is less than the largest heap of these tests.
  for (const auto& driver : testing::vulkan_drivers())
    if (driver.name == "lavapipe")
      more_memories()["vulkan_" + driver.name] = [name = driver.name] {
        const auto made = std::make_shared<OnDriver>(name);
        return std::shared_ptr<Backend>(made, made->backend.get());
      };
  return true;
}();

}  // namespace
}  // namespace tenon
