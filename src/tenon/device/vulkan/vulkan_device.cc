#include "tenon/device/vulkan/vulkan_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tenon/base/byte_size.h"

namespace tenon {
namespace {

constexpr std::uint32_t kMostQueues = 4;
constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
constexpr VkMemoryPropertyFlags kCoherent =
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
// What buffers are used for: copies both ways, and kernels by address and as texels.
constexpr VkBufferUsageFlags kUsage =
    VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT |
    VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
    VK_BUFFER_USAGE_UNIFORM_TEXEL_BUFFER_BIT;

VkPhysicalDevice find_physical(const VulkanDriver& driver, int index) {
  driver.require_same_process();
  if (index < 0 || index >= driver.device_count())
    raise<DeviceError>("there is no vulkan:{}: Vulkan finds {} device{}", index,
                       driver.device_count(), driver.device_count() == 1 ? "" : "s");
  return static_cast<VkPhysicalDevice>(driver.physical_device(index));
}

}  // namespace

VulkanDevice::VulkanDevice(std::shared_ptr<const VulkanDriver> driver, int index)
    : driver_(std::move(driver)),
      physical_(find_physical(*driver_, index)),
      name_(fmt::format("vulkan:{}", index)) {
  const VulkanInstanceFunctions& instance = driver_->functions();
  VkPhysicalDeviceSubgroupProperties subgroup = {};
  subgroup.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES;
  VkPhysicalDeviceMaintenance3Properties most = {};
  most.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES;
  most.pNext = &subgroup;
  VkPhysicalDeviceProperties2 properties = {};
  properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
  properties.pNext = &most;
  instance.GetPhysicalDeviceProperties2(physical_, &properties);
  properties_ = properties.properties;
  most_bytes_at_once_ = most.maxMemoryAllocationSize;
  if ((subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0 &&
      (subgroup.supportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT) != 0)
    abilities_.lanes = subgroup.subgroupSize;
  abilities_.on_host = properties_.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
  VkPhysicalDeviceMemoryProperties2 memory = {};
  memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
  instance.GetPhysicalDeviceMemoryProperties2(physical_, &memory);
  memory_ = memory.memoryProperties;
  require_features();
  tells_budget_ = has_extension(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  choose_queues();
  open();
  try {
    find_usable_types();
  } catch (...) {
    functions_.DestroyDevice(device_, nullptr);
    throw;
  }
}

VulkanDevice::~VulkanDevice() {
  if (driver_->is_same_process()) functions_.DestroyDevice(device_, nullptr);
}

void VulkanDevice::require_features() {
  const auto lacks = [&](const std::string& what) {
    return DeviceError(fmt::format("{} ({}) cannot be used: {}; update its driver, or take another "
                                   "device",
                                   name_, properties_.deviceName, what));
  };
  if (properties_.apiVersion < VK_API_VERSION_1_2)
    throw lacks(fmt::format("it is of Vulkan {}.{}, and Tenon needs 1.2",
                            VK_API_VERSION_MAJOR(properties_.apiVersion),
                            VK_API_VERSION_MINOR(properties_.apiVersion)));
  VkPhysicalDeviceVulkan11Features storage = {};
  storage.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
  VkPhysicalDeviceVulkan12Features has = {};
  has.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  has.pNext = &storage;
  VkPhysicalDeviceFeatures2 features = {};
  features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  features.pNext = &has;
  driver_->functions().GetPhysicalDeviceFeatures2(physical_, &features);
  if (!has.timelineSemaphore) throw lacks("it has no timelineSemaphore");
  if (!has.bufferDeviceAddress) throw lacks("it has no bufferDeviceAddress");
  abilities_.integers = features.features.shaderInt64 && features.features.shaderInt16 &&
                        has.storageBuffer8BitAccess && storage.storageBuffer16BitAccess;
  abilities_.f64 = features.features.shaderFloat64;
}

bool VulkanDevice::has_extension(const char* name) const {
  const VulkanInstanceFunctions& instance = driver_->functions();
  std::uint32_t count = 0;
  call_vulkan(instance.EnumerateDeviceExtensionProperties, name_, physical_,
              static_cast<const char*>(nullptr), &count,
              static_cast<VkExtensionProperties*>(nullptr));
  std::vector<VkExtensionProperties> extensions(count);
  call_vulkan(instance.EnumerateDeviceExtensionProperties, name_, physical_,
              static_cast<const char*>(nullptr), &count, extensions.data());
  return std::any_of(extensions.begin(), extensions.end(), [&](const auto& extension) {
    return std::strcmp(extension.extensionName, name) == 0;
  });
}

// The family with most queues among those that compute; every such family copies too.
void VulkanDevice::choose_queues() {
  const VulkanInstanceFunctions& instance = driver_->functions();
  std::uint32_t count = 0;
  instance.GetPhysicalDeviceQueueFamilyProperties(physical_, &count,
                                                  static_cast<VkQueueFamilyProperties*>(nullptr));
  std::vector<VkQueueFamilyProperties> families(count);
  instance.GetPhysicalDeviceQueueFamilyProperties(physical_, &count, families.data());
  for (std::uint32_t i = 0; i < count; ++i)
    if ((families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) != 0 &&
        families[i].queueCount > queue_count_) {
      family_ = i;
      queue_count_ = families[i].queueCount;
    }
  if (queue_count_ == 0)
    raise<DeviceError>("{} ({}) cannot be used: it has no queue that computes", name_,
                       properties_.deviceName);
  queue_count_ = std::min(queue_count_, kMostQueues);
}

void VulkanDevice::open() {
  const std::vector<float> priorities(queue_count_, 1.0f);
  VkDeviceQueueCreateInfo queues = {};
  queues.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
  queues.queueFamilyIndex = family_;
  queues.queueCount = queue_count_;
  queues.pQueuePriorities = priorities.data();
  VkPhysicalDeviceFeatures2 arithmetic = {};
  arithmetic.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  arithmetic.features.shaderInt64 = abilities_.integers;
  arithmetic.features.shaderInt16 = abilities_.integers;
  arithmetic.features.shaderFloat64 = abilities_.f64;
  VkPhysicalDeviceVulkan11Features storage = {};
  storage.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
  storage.pNext = &arithmetic;
  storage.storageBuffer16BitAccess = abilities_.integers;
  VkPhysicalDeviceVulkan12Features wanted = {};
  wanted.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  wanted.pNext = &storage;
  wanted.storageBuffer8BitAccess = abilities_.integers;
  wanted.timelineSemaphore = VK_TRUE;
  wanted.bufferDeviceAddress = VK_TRUE;
  const char* const extensions[] = {VK_EXT_MEMORY_BUDGET_EXTENSION_NAME};
  VkDeviceCreateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
  info.pNext = &wanted;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queues;
  info.enabledExtensionCount = tells_budget_ ? 1 : 0;
  info.ppEnabledExtensionNames = extensions;
  const VulkanInstanceFunctions& instance = driver_->functions();
  call_vulkan(instance.CreateDevice, name_, physical_, &info,
              static_cast<const VkAllocationCallbacks*>(nullptr), &device_);
#define TENON_VULKAN_LOOK_UP(function)                                                          \
  functions_.function = {                                                                       \
      reinterpret_cast<PFN_vk##function>(instance.GetDeviceProcAddr(device_, "vk" #function)), \
      "vk" #function};
  TENON_VULKAN_DEVICE_FUNCTIONS(TENON_VULKAN_LOOK_UP)
#undef TENON_VULKAN_LOOK_UP
  for (std::uint32_t i = 0; i < queue_count_; ++i) {
    VkQueue queue = nullptr;
    functions_.GetDeviceQueue(device_, family_, i, &queue);
    queues_.push_back(queue);
  }
}

// --- Memory.

void VulkanDevice::find_usable_types() {
  VkBufferCreateInfo buffer = {};
  buffer.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  buffer.size = 256;
  buffer.usage = kUsage;
  VkBuffer probe = VK_NULL_HANDLE;
  call_vulkan(functions_.CreateBuffer, name_, device_, &buffer,
              static_cast<const VkAllocationCallbacks*>(nullptr), &probe);
  VkMemoryRequirements needs = {};
  functions_.GetBufferMemoryRequirements(device_, probe, &needs);
  functions_.DestroyBuffer(device_, probe, nullptr);
  usable_types_ = needs.memoryTypeBits;
  if (!type_of(MemoryKind::kDevice) || !type_of(MemoryKind::kPinned))
    raise<DeviceError>("{} ({}) cannot be used: buffers have no memory there", name_,
                       properties_.deviceName);
}

// In the largest heap; the first of several there.
std::optional<VulkanMemoryType> VulkanDevice::find_type(VkMemoryPropertyFlags wanted) const {
  std::optional<VulkanMemoryType> best;
  for (std::uint32_t i = 0; i < memory_.memoryTypeCount; ++i) {
    const VkMemoryType& type = memory_.memoryTypes[i];
    if ((usable_types_ >> i & 1) == 0 || (type.propertyFlags & wanted) != wanted) continue;
    if (best && memory_.memoryHeaps[type.heapIndex].size <= memory_.memoryHeaps[best->heap].size)
      continue;
    best = {i, type.heapIndex, (type.propertyFlags & kCoherent) == kCoherent};
  }
  return best;
}

std::optional<VulkanMemoryType> VulkanDevice::type_of(MemoryKind kind) const {
  switch (kind) {
    case MemoryKind::kDevice:
      return has_one_memory() ? find_type(kLocal | kCoherent) : find_type(kLocal);
    case MemoryKind::kShared:
      return find_type(kLocal | kCoherent);
    case MemoryKind::kPinned: {
      const auto cached = find_type(kCoherent | VK_MEMORY_PROPERTY_HOST_CACHED_BIT);
      return cached ? cached : find_type(kCoherent);
    }
    case MemoryKind::kManaged:
      return std::nullopt;
  }
  return std::nullopt;
}

bool VulkanDevice::has_one_memory() const {
  const auto shared = find_type(kLocal | kCoherent);
  if (!shared) return false;
  for (std::uint32_t i = 0; i < memory_.memoryHeapCount; ++i)
    if ((memory_.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0 &&
        memory_.memoryHeaps[i].size > memory_.memoryHeaps[shared->heap].size)
      return false;
  return true;
}

std::uint64_t VulkanDevice::heap_bytes() const {
  return memory_.memoryHeaps[type_of(MemoryKind::kDevice)->heap].size;
}

std::uint64_t VulkanDevice::free_bytes(std::uint64_t held) const {
  const std::uint64_t total = heap_bytes();
  if (!tells_budget_) return total - std::min(total, held);
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {};
  budget.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT;
  VkPhysicalDeviceMemoryProperties2 memory = {};
  memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
  memory.pNext = &budget;
  driver_->functions().GetPhysicalDeviceMemoryProperties2(physical_, &memory);
  const std::uint32_t heap = type_of(MemoryKind::kDevice)->heap;
  const std::uint64_t may_use = std::min<std::uint64_t>(total, budget.heapBudget[heap]);
  return may_use - std::min<std::uint64_t>(may_use, budget.heapUsage[heap]);
}

std::optional<VulkanBuffer> VulkanDevice::create_buffer(std::uint64_t size_bytes,
                                                        const VulkanMemoryType& type) {
  if (size_bytes > most_bytes_at_once_) return std::nullopt;
  if (buffers_ >= properties_.limits.maxMemoryAllocationCount) return std::nullopt;
  VulkanBuffer made;
  made.size_bytes = size_bytes;
  made.heap = type.heap;
  const auto call = [&](const auto& function, auto... arguments) {
    const VkResult result = function(arguments...);
    if (result == VK_SUCCESS) return true;
    destroy_buffer(made);
    if (is_lack_of_memory(result) || result == VK_ERROR_MEMORY_MAP_FAILED) return false;
    fail_vulkan(function.name, fmt::format("{}, {}", name_, format_byte_size(size_bytes)), result);
  };
  const VkAllocationCallbacks* const standard = nullptr;
  VkBufferCreateInfo buffer = {};
  buffer.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  buffer.size = size_bytes;
  buffer.usage = kUsage;
  if (!call(functions_.CreateBuffer, device_, &buffer, standard, &made.buffer)) return std::nullopt;
  VkMemoryRequirements needs = {};
  functions_.GetBufferMemoryRequirements(device_, made.buffer, &needs);
  VkMemoryAllocateFlagsInfo flags = {};
  flags.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO;
  flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  VkMemoryAllocateInfo memory = {};
  memory.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
  memory.pNext = &flags;
  memory.allocationSize = needs.size;
  memory.memoryTypeIndex = type.index;
  if (!call(functions_.AllocateMemory, device_, &memory, standard, &made.memory))
    return std::nullopt;
  ++buffers_;
  if (!call(functions_.BindBufferMemory, device_, made.buffer, made.memory, VkDeviceSize{0}))
    return std::nullopt;
  if (type.host_visible) {
    void* mapped = nullptr;
    if (!call(functions_.MapMemory, device_, made.memory, VkDeviceSize{0}, VK_WHOLE_SIZE,
              VkMemoryMapFlags{0}, &mapped))
      return std::nullopt;
    made.mapped = static_cast<std::byte*>(mapped);
  }
  VkBufferDeviceAddressInfo address = {};
  address.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO;
  address.buffer = made.buffer;
  made.address = functions_.GetBufferDeviceAddress(device_, &address);
  return made;
}

void VulkanDevice::destroy_buffer(const VulkanBuffer& buffer) {
  functions_.DestroyBuffer(device_, buffer.buffer, nullptr);
  if (buffer.memory == VK_NULL_HANDLE) return;
  functions_.FreeMemory(device_, buffer.memory, nullptr);
  --buffers_;
}

}  // namespace tenon
