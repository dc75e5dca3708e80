#include "tenon/device/vulkan/vulkan_texels.h"

namespace tenon {
namespace {

constexpr VkDescriptorType kType = VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER;

}  // namespace

VulkanTexels::~VulkanTexels() {
  for (const auto& [buffer, view] : views_) destroy(view);
  vulkan_.functions().DestroyDescriptorSetLayout(vulkan_.handle(), layout_, nullptr);
}

std::optional<std::uint32_t> VulkanTexels::texel_at(const VulkanBuffer& buffer,
                                                    std::uint64_t offset) const {
  const std::uint64_t most = vulkan_.properties().limits.maxTexelBufferElements;
  if (offset % kTexelBytes != 0 || buffer.size_bytes / kTexelBytes > most) return std::nullopt;
  return static_cast<std::uint32_t>(offset / kTexelBytes);
}

VkDescriptorSetLayout VulkanTexels::layout() {
  if (layout_ != VK_NULL_HANDLE) return layout_;
  VkDescriptorSetLayoutBinding binding = {};
  binding.descriptorType = kType;
  binding.descriptorCount = 1;
  binding.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT;
  VkDescriptorSetLayoutCreateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO;
  info.bindingCount = 1;
  info.pBindings = &binding;
  call_vulkan(vulkan_.functions().CreateDescriptorSetLayout, "", vulkan_.handle(), &info,
              kNoCallbacks, &layout_);
  return layout_;
}

VkDescriptorSet VulkanTexels::set_of(const VulkanBuffer& buffer) {
  View& view = views_[buffer.buffer];
  if (view.set != VK_NULL_HANDLE) [[likely]] return view.set;
  const VulkanDeviceFunctions& vk = vulkan_.functions();
  const VkDescriptorSetLayout of_sets = layout();
  if (view.view == VK_NULL_HANDLE) {
    VkBufferViewCreateInfo texels = {};
    texels.sType = VK_STRUCTURE_TYPE_BUFFER_VIEW_CREATE_INFO;
    texels.buffer = buffer.buffer;
    texels.format = VK_FORMAT_R32G32B32A32_SFLOAT;
    texels.range = buffer.size_bytes / kTexelBytes * kTexelBytes;
    call_vulkan(vk.CreateBufferView, "", vulkan_.handle(), &texels, kNoCallbacks, &view.view);
  }
  if (view.pool == VK_NULL_HANDLE) {
    const VkDescriptorPoolSize size = {kType, 1};
    VkDescriptorPoolCreateInfo pool = {};
    pool.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO;
    pool.maxSets = 1;
    pool.poolSizeCount = 1;
    pool.pPoolSizes = &size;
    call_vulkan(vk.CreateDescriptorPool, "", vulkan_.handle(), &pool, kNoCallbacks, &view.pool);
  }
  VkDescriptorSetAllocateInfo wanted = {};
  wanted.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO;
  wanted.descriptorPool = view.pool;
  wanted.descriptorSetCount = 1;
  wanted.pSetLayouts = &of_sets;
  VkDescriptorSet made = VK_NULL_HANDLE;
  call_vulkan(vk.AllocateDescriptorSets, "", vulkan_.handle(), &wanted, &made);
  VkWriteDescriptorSet write = {};
  write.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
  write.dstSet = made;
  write.descriptorCount = 1;
  write.descriptorType = kType;
  write.pTexelBufferView = &view.view;
  vk.UpdateDescriptorSets(vulkan_.handle(), 1u, &write, 0u,
                          static_cast<const VkCopyDescriptorSet*>(nullptr));
  return view.set = made;
}

void VulkanTexels::forget(const VulkanBuffer& buffer) {
  const auto found = views_.find(buffer.buffer);
  if (found == views_.end()) return;
  destroy(found->second);
  views_.erase(found);
}

void VulkanTexels::destroy(const View& view) {
  vulkan_.functions().DestroyDescriptorPool(vulkan_.handle(), view.pool, nullptr);
  vulkan_.functions().DestroyBufferView(vulkan_.handle(), view.view, nullptr);
}

}  // namespace tenon
