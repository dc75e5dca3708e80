// Vulkan's functions, found at run time. For the sources of device/vulkan/ alone: what others
// include needs no header of Vulkan.
#pragma once

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include <string>
#include <string_view>

#include "tenon/base/error.h"

// X(name without vk), by what they are looked up with. All are in Vulkan 1.2, but the last list.
#define TENON_VULKAN_GLOBAL_FUNCTIONS(X) \
  X(EnumerateInstanceVersion)            \
  X(EnumerateInstanceLayerProperties)    \
  X(CreateInstance)

#define TENON_VULKAN_INSTANCE_FUNCTIONS(X)  \
  X(DestroyInstance)                        \
  X(EnumeratePhysicalDevices)               \
  X(GetPhysicalDeviceProperties2)           \
  X(GetPhysicalDeviceFeatures2)             \
  X(GetPhysicalDeviceMemoryProperties2)     \
  X(GetPhysicalDeviceQueueFamilyProperties) \
  X(EnumerateDeviceExtensionProperties)     \
  X(CreateDevice)                           \
  X(GetDeviceProcAddr)

#define TENON_VULKAN_DEVICE_FUNCTIONS(X) \
  X(DestroyDevice)                       \
  X(GetDeviceQueue)                      \
  X(QueueSubmit)                         \
  X(DeviceWaitIdle)                      \
  X(AllocateMemory)                      \
  X(FreeMemory)                          \
  X(MapMemory)                           \
  X(CreateBuffer)                        \
  X(DestroyBuffer)                       \
  X(GetBufferMemoryRequirements)         \
  X(BindBufferMemory)                    \
  X(GetBufferDeviceAddress)              \
  X(CreateSemaphore)                     \
  X(DestroySemaphore)                    \
  X(GetSemaphoreCounterValue)            \
  X(WaitSemaphores)                      \
  X(CreateCommandPool)                   \
  X(DestroyCommandPool)                  \
  X(AllocateCommandBuffers)              \
  X(BeginCommandBuffer)                  \
  X(EndCommandBuffer)                    \
  X(CmdPipelineBarrier)                  \
  X(CmdCopyBuffer)                       \
  X(CmdFillBuffer)                       \
  X(CreateShaderModule)                  \
  X(DestroyShaderModule)                 \
  X(CreatePipelineLayout)                \
  X(DestroyPipelineLayout)               \
  X(CreateComputePipelines)              \
  X(DestroyPipeline)                     \
  X(CmdBindPipeline)                     \
  X(CmdPushConstants)                    \
  X(CmdDispatch)                         \
  X(CreateBufferView)                    \
  X(DestroyBufferView)                   \
  X(CreateDescriptorSetLayout)           \
  X(DestroyDescriptorSetLayout)          \
  X(CreateDescriptorPool)                \
  X(DestroyDescriptorPool)               \
  X(AllocateDescriptorSets)              \
  X(UpdateDescriptorSets)                \
  X(CmdBindDescriptorSets)

#define TENON_VULKAN_DEBUG_FUNCTIONS(X) \
  X(CreateDebugUtilsMessengerEXT)       \
  X(DestroyDebugUtilsMessengerEXT)

namespace tenon {

// A function of Vulkan, and its name for messages.
template <typename Pointer>
struct VulkanFunction {
  Pointer pointer = nullptr;
  const char* name = "";

  template <typename... Arguments>
  auto operator()(Arguments... arguments) const {
    return pointer(arguments...);
  }
};

#define TENON_VULKAN_MEMBER(name) VulkanFunction<PFN_vk##name> name;
struct VulkanInstanceFunctions {
  TENON_VULKAN_INSTANCE_FUNCTIONS(TENON_VULKAN_MEMBER)
  TENON_VULKAN_DEBUG_FUNCTIONS(TENON_VULKAN_MEMBER)
};
struct VulkanDeviceFunctions {
  TENON_VULKAN_DEVICE_FUNCTIONS(TENON_VULKAN_MEMBER)
};
#undef TENON_VULKAN_MEMBER

// The driver allocates its own records by itself.
inline constexpr const VkAllocationCallbacks* kNoCallbacks = nullptr;

// "VK_ERROR_DEVICE_LOST".
std::string_view vulkan_result_name(VkResult result);

// Whether a result means that memory, of whatever kind, is short.
constexpr bool is_lack_of_memory(VkResult result) {
  return result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY ||
         result == VK_ERROR_TOO_MANY_OBJECTS || result == VK_ERROR_FRAGMENTED_POOL ||
         result == VK_ERROR_FRAGMENTATION;
}

// Throws VulkanError "vkName(arguments): VK_ERROR_...".
[[noreturn]] void fail_vulkan(const char* function, std::string_view arguments, VkResult result);

// Calls the function; throws VulkanError unless it succeeds. `about` says in the message what the
// call was for.
template <typename Pointer, typename... Arguments>
void call_vulkan(const VulkanFunction<Pointer>& function, std::string_view about,
                 Arguments... arguments) {
  const VkResult result = function(arguments...);
  if (result != VK_SUCCESS) [[unlikely]] fail_vulkan(function.name, about, result);
}

}  // namespace tenon
