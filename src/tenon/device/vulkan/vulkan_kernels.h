// The pipelines of kernels. For the sources of device/vulkan/ alone.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>

#include "tenon/device/vulkan/vulkan_backend.h"
#include "tenon/device/vulkan/vulkan_device.h"
#include "tenon/device/vulkan/vulkan_texels.h"

namespace tenon {

// Each kernel's pipeline is made at its first use and kept. Most have one layout: push constants
// and no descriptors, since kernels get addresses. Those that read texels have a second one, with
// the sets of two segments. Not thread-safe.
class VulkanKernels {
 public:
  static constexpr std::uint32_t kArgumentBytes = 128;  // every device has so many

  using Sets = std::array<VkDescriptorSet, 2>;  // of texels; null for kernels that read none

  VulkanKernels(VulkanDevice& vulkan, VulkanTexels& texels) : vulkan_(vulkan), texels_(texels) {}
  ~VulkanKernels();
  VulkanKernels(const VulkanKernels&) = delete;
  VulkanKernels& operator=(const VulkanKernels&) = delete;

  VkPipeline pipeline_of(const VulkanKernel& kernel);
  // Records the kernel. Requires: its arguments and groups fit.
  void record(VkCommandBuffer commands, VkPipeline pipeline, std::span<const std::byte> arguments,
              const std::array<std::uint32_t, 3>& groups, const Sets& sets) const;
  std::uint64_t count() const { return pipelines_.size(); }

 private:
  using Key = std::pair<const std::uint32_t*, std::array<std::uint32_t, 4>>;

  VkPipelineLayout layout_for(bool reads_texels);
  VkPipeline make_pipeline(const VulkanKernel& kernel);

  VulkanDevice& vulkan_;
  VulkanTexels& texels_;
  std::array<VkPipelineLayout, 2> layouts_ = {};  // by whether the kernel reads texels
  std::map<Key, VkPipeline> pipelines_;
};

}  // namespace tenon
