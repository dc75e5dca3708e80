#include "tenon/device/vulkan/vulkan_kernels.h"

namespace tenon {

VulkanKernels::~VulkanKernels() {
  const VulkanDeviceFunctions& vk = vulkan_.functions();
  for (const auto& [key, pipeline] : pipelines_)
    vk.DestroyPipeline(vulkan_.handle(), pipeline, nullptr);
  for (const VkPipelineLayout layout : layouts_)
    vk.DestroyPipelineLayout(vulkan_.handle(), layout, nullptr);
}

VkPipelineLayout VulkanKernels::layout_for(bool reads_texels) {
  VkPipelineLayout& layout = layouts_[reads_texels ? 1 : 0];
  if (layout != VK_NULL_HANDLE) return layout;
  std::array<VkDescriptorSetLayout, 2> sets = {};
  if (reads_texels) sets.fill(texels_.layout());
  VkPushConstantRange range = {};
  range.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT;
  range.size = kArgumentBytes;
  VkPipelineLayoutCreateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
  info.setLayoutCount = reads_texels ? 2 : 0;
  info.pSetLayouts = sets.data();
  info.pushConstantRangeCount = 1;
  info.pPushConstantRanges = &range;
  call_vulkan(vulkan_.functions().CreatePipelineLayout, "", vulkan_.handle(), &info, kNoCallbacks,
              &layout);
  return layout;
}

VkPipeline VulkanKernels::make_pipeline(const VulkanKernel& kernel) {
  const VulkanDeviceFunctions& vk = vulkan_.functions();
  const VkPipelineLayout layout = layout_for(kernel.reads_texels);
  VkShaderModuleCreateInfo code = {};
  code.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
  code.codeSize = kernel.code.size_bytes();
  code.pCode = kernel.code.data();
  VkShaderModule module = VK_NULL_HANDLE;
  call_vulkan(vk.CreateShaderModule, "", vulkan_.handle(), &code, kNoCallbacks, &module);
  VkSpecializationMapEntry entries[4] = {};
  for (std::uint32_t i = 0; i < 4; ++i) entries[i] = {i, 4 * i, 4};
  VkSpecializationInfo constants = {};
  constants.mapEntryCount = 4;
  constants.pMapEntries = entries;
  constants.dataSize = sizeof kernel.constants;
  constants.pData = kernel.constants.data();
  VkComputePipelineCreateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  info.stage.pSpecializationInfo = &constants;
  info.layout = layout;
  VkPipeline made = VK_NULL_HANDLE;
  const VkResult result =
      vk.CreateComputePipelines(vulkan_.handle(), static_cast<VkPipelineCache>(VK_NULL_HANDLE), 1u,
                                &info, kNoCallbacks, &made);
  vk.DestroyShaderModule(vulkan_.handle(), module, nullptr);
  if (result != VK_SUCCESS) fail_vulkan(vk.CreateComputePipelines.name, "", result);
  return made;
}

VkPipeline VulkanKernels::pipeline_of(const VulkanKernel& kernel) {
  VkPipeline& pipeline = pipelines_[{kernel.code.data(), kernel.constants}];
  if (pipeline != VK_NULL_HANDLE) [[likely]] return pipeline;
  pipeline = make_pipeline(kernel);
  return pipeline;
}

void VulkanKernels::record(VkCommandBuffer commands, VkPipeline pipeline,
                           std::span<const std::byte> arguments,
                           const std::array<std::uint32_t, 3>& groups, const Sets& sets) const {
  const VulkanDeviceFunctions& vk = vulkan_.functions();
  const bool reads_texels = sets[0] != VK_NULL_HANDLE;
  const VkPipelineLayout layout = layouts_[reads_texels ? 1 : 0];
  vk.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
  if (reads_texels)
    vk.CmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout, 0u, 2u, sets.data(),
                             0u, static_cast<const std::uint32_t*>(nullptr));
  vk.CmdPushConstants(commands, layout, VkShaderStageFlags{VK_SHADER_STAGE_COMPUTE_BIT}, 0u,
                      static_cast<std::uint32_t>(arguments.size()),
                      static_cast<const void*>(arguments.data()));
  vk.CmdDispatch(commands, groups[0], groups[1], groups[2]);
}

}  // namespace tenon
