// A logical device of Vulkan: its functions, its queues, and what its memory is. For the sources of
// device/vulkan/ alone.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tenon/device/backend.h"
#include "tenon/device/vulkan/vulkan_backend.h"
#include "tenon/device/vulkan/vulkan_calls.h"
#include "tenon/device/vulkan/vulkan_driver.h"

namespace tenon {

// Where memory of one kind comes from.
struct VulkanMemoryType {
  std::uint32_t index = 0;
  std::uint32_t heap = 0;
  bool host_visible = false;  // and coherent: nothing is flushed or invalidated
};

// A buffer over memory of its own.
struct VulkanBuffer {
  VkBuffer buffer = VK_NULL_HANDLE;
  VkDeviceMemory memory = VK_NULL_HANDLE;
  VkDeviceAddress address = 0;
  std::byte* mapped = nullptr;  // null: the host cannot reach it
  std::uint64_t size_bytes = 0;
  std::uint32_t heap = 0;
};

// Opens physical device `index` with timeline semaphores and buffer addresses.
//
// Memory types: device memory is what the host reaches too where the device has one memory
// (Note [One memory]), else the device's own. Host memory is coherent; Vulkan guarantees such a
// type, so nothing here is ever flushed.
//
// Note [One memory]. Host and device share one memory when the host can map, coherently, the
// largest heap that is local to the device. On a discrete card with a large window (resizable BAR)
// that holds too: contents written through it cross the bus, as they would in a copy.
class VulkanDevice {
 public:
  // Throws DeviceError where there is no such device, or it lacks what is needed.
  VulkanDevice(std::shared_ptr<const VulkanDriver> driver, int index);
  ~VulkanDevice();
  VulkanDevice(const VulkanDevice&) = delete;
  VulkanDevice& operator=(const VulkanDevice&) = delete;

  const VulkanDriver& driver() const { return *driver_; }
  const VulkanDeviceFunctions& functions() const { return functions_; }
  VkDevice handle() const { return device_; }
  const VkPhysicalDeviceProperties& properties() const { return properties_; }
  std::uint64_t most_bytes_at_once() const { return most_bytes_at_once_; }
  const VulkanAbilities& abilities() const { return abilities_; }

  std::uint32_t queue_family() const { return family_; }
  const std::vector<VkQueue>& queues() const { return queues_; }

  // What serves a kind; nothing where the device has no such memory.
  std::optional<VulkanMemoryType> type_of(MemoryKind kind) const;
  bool has_one_memory() const;
  // Of the heap that serves device memory.
  std::uint64_t heap_bytes() const;
  // What may still be allocated there: the driver's budget where it tells one, else what `held`
  // leaves.
  std::uint64_t free_bytes(std::uint64_t held) const;

  // Nothing where memory is short, or where the driver allows no more or no larger allocations. Not
  // thread-safe, as destroy_buffer.
  std::optional<VulkanBuffer> create_buffer(std::uint64_t size_bytes, const VulkanMemoryType& type);
  void destroy_buffer(const VulkanBuffer& buffer);

 private:
  void choose_queues();
  void require_features();
  void open();
  void find_usable_types();
  bool has_extension(const char* name) const;
  std::optional<VulkanMemoryType> find_type(VkMemoryPropertyFlags wanted) const;

  const std::shared_ptr<const VulkanDriver> driver_;
  const VkPhysicalDevice physical_;
  const std::string name_;  // "vulkan:0 (llvmpipe)"
  VkPhysicalDeviceProperties properties_ = {};
  VkPhysicalDeviceMemoryProperties memory_ = {};
  VulkanAbilities abilities_;
  std::uint32_t usable_types_ = 0;  // by bit: a buffer may lie in that type of memory
  std::uint64_t most_bytes_at_once_ = 0;
  bool tells_budget_ = false;
  std::uint32_t family_ = 0;
  std::uint32_t queue_count_ = 0;
  VkDevice device_ = nullptr;
  VulkanDeviceFunctions functions_;
  std::vector<VkQueue> queues_;
  std::uint64_t buffers_ = 0;  // that have memory now
};

}  // namespace tenon
