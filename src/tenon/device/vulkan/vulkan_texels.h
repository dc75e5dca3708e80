// Segments as buffers of texels. For the sources of device/vulkan/ alone.
#pragma once

#include <map>
#include <optional>

#include "tenon/device/vulkan/vulkan_device.h"

namespace tenon {

// A texel is four floats, beginning at a multiple of 16 bytes. A driver that computes on the host
// loads a texel for all its lanes in a few dozen instructions, where it loads a number behind an
// address in a loop over the lanes. Each segment has one descriptor set, with all of it as texels,
// made when a kernel first reads it so. Not thread-safe.
class VulkanTexels {
 public:
  static constexpr std::uint64_t kTexelBytes = 16;

  explicit VulkanTexels(VulkanDevice& vulkan) : vulkan_(vulkan) {}
  ~VulkanTexels();
  VulkanTexels(const VulkanTexels&) = delete;
  VulkanTexels& operator=(const VulkanTexels&) = delete;

  // Which texel of the buffer begins there; nothing where none does, or where the device takes
  // fewer texels than the buffer has.
  std::optional<std::uint32_t> texel_at(const VulkanBuffer& buffer, std::uint64_t offset) const;
  // Of every set. Throws VulkanError, as set_of; then nothing has changed.
  VkDescriptorSetLayout layout();
  // Requires: texel_at finds texels there.
  VkDescriptorSet set_of(const VulkanBuffer& buffer);
  // Requires: the device is done with it. Before the buffer is destroyed.
  void forget(const VulkanBuffer& buffer);

 private:
  struct View {
    VkBufferView view = VK_NULL_HANDLE;
    VkDescriptorPool pool = VK_NULL_HANDLE;
    VkDescriptorSet set = VK_NULL_HANDLE;
  };

  void destroy(const View& view);

  VulkanDevice& vulkan_;
  VkDescriptorSetLayout layout_ = VK_NULL_HANDLE;
  std::map<VkBuffer, View> views_;
};

}  // namespace tenon
