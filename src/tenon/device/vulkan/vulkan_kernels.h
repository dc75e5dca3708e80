// The pipelines of kernels. For the sources of device/vulkan/ alone.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>

#include "tenon/device/vulkan/vulkan_backend.h"
#include "tenon/device/vulkan/vulkan_device.h"

namespace tenon {

// Each kernel's pipeline is made at its first use and kept. All have one layout: push constants and
// no descriptors, since kernels get addresses. Not thread-safe.
class VulkanKernels {
 public:
  static constexpr std::uint32_t kArgumentBytes = 128;  // every device has so many

  explicit VulkanKernels(VulkanDevice& vulkan) : vulkan_(vulkan) {}
  ~VulkanKernels();
  VulkanKernels(const VulkanKernels&) = delete;
  VulkanKernels& operator=(const VulkanKernels&) = delete;

  VkPipeline pipeline_of(const VulkanKernel& kernel);
  // Records the kernel. Requires: its arguments and groups fit.
  void record(VkCommandBuffer commands, VkPipeline pipeline, std::span<const std::byte> arguments,
              const std::array<std::uint32_t, 3>& groups) const;
  std::uint64_t count() const { return pipelines_.size(); }

 private:
  using Key = std::pair<const std::uint32_t*, std::array<std::uint32_t, 4>>;

  void make_layout();
  VkPipeline make_pipeline(const VulkanKernel& kernel) const;

  VulkanDevice& vulkan_;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  std::map<Key, VkPipeline> pipelines_;
};

}  // namespace tenon
