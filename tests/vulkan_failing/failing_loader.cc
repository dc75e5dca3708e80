#include "vulkan_failing/failing_loader.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "tenon/device/vulkan/vulkan_calls.h"

namespace {

std::atomic<std::uint64_t> calls{0};
std::atomic<std::uint64_t> failing{0};
std::atomic<int> failure{0};
std::atomic<const char*> failed{nullptr};
std::atomic<Lack> lack{Lack::kNone};

PFN_vkGetDeviceProcAddr real_device_address = nullptr;
std::atomic<VkDevice> device{nullptr};  // the latest

// A device that is lost computes nothing more, and the real one shall not either.
void end_work() {
  if (device == nullptr) return;
  const auto wait = reinterpret_cast<PFN_vkDeviceWaitIdle>(
      real_device_address(device, "vkDeviceWaitIdle"));
  wait(device);
}

bool fails(const char* name) {
  const std::uint64_t call = ++calls;
  static const char* const file = std::getenv(kLostOnceThereIs);
  if (file != nullptr && failing == 0 && ::access(file, F_OK) == 0) {
    failure = VK_ERROR_DEVICE_LOST;
    failing = call;
  }
  const std::uint64_t nth = failing;
  if (nth == 0 || call < nth) return false;
  if (call > nth && failure != VK_ERROR_DEVICE_LOST) return false;
  if (call == nth) {
    failed = name;
    if (failure == VK_ERROR_DEVICE_LOST) end_work();
  }
  return true;
}

// What devices say of themselves.
void make_poorer(VkPhysicalDevice, VkPhysicalDeviceProperties2* properties) {
  if (lack == Lack::kVersion) properties->properties.apiVersion = VK_API_VERSION_1_1;
}
void make_poorer(VkPhysicalDevice, VkPhysicalDeviceFeatures2* features) {
  for (auto* part = static_cast<VkBaseOutStructure*>(features->pNext); part != nullptr;
       part = part->pNext) {
    if (part->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES) continue;
    auto& has = *reinterpret_cast<VkPhysicalDeviceVulkan12Features*>(part);
    if (lack == Lack::kTimelines) has.timelineSemaphore = VK_FALSE;
    if (lack == Lack::kAddresses) has.bufferDeviceAddress = VK_FALSE;
  }
}
void make_poorer(VkPhysicalDevice, std::uint32_t* count, VkQueueFamilyProperties* families) {
  if (lack != Lack::kQueues || families == nullptr) return;
  for (std::uint32_t i = 0; i < *count; ++i)
    families[i].queueFlags &= ~VkQueueFlags{VK_QUEUE_COMPUTE_BIT};
}
template <typename... Arguments>
void make_poorer(Arguments...) {}

// A function. Those that return a result may fail, others but these two kinds pass untouched.
template <int kNumber, typename Pointer>
struct Wrapped {
  static PFN_vkVoidFunction wrap(const char*, PFN_vkVoidFunction real) { return real; }
};
template <int kNumber, typename... Arguments>
struct Wrapped<kNumber, void(VKAPI_PTR*)(Arguments...)> {
  static inline void(VKAPI_PTR* real)(Arguments...) = nullptr;

  static void VKAPI_PTR call(Arguments... arguments) {
    real(arguments...);
    make_poorer(arguments...);
  }
  static PFN_vkVoidFunction wrap(const char*, PFN_vkVoidFunction found) {
    if (found == nullptr) return nullptr;
    real = reinterpret_cast<decltype(real)>(found);
    return reinterpret_cast<PFN_vkVoidFunction>(&call);
  }
};
template <int kNumber, typename... Arguments>
struct Wrapped<kNumber, VkResult(VKAPI_PTR*)(Arguments...)> {
  static inline VkResult(VKAPI_PTR* real)(Arguments...) = nullptr;
  static inline const char* name = nullptr;

  static VkResult VKAPI_PTR call(Arguments... arguments) {
    if (lack == Lack::kMemory && std::strcmp(name, "vkAllocateMemory") == 0)
      return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    return fails(name) ? static_cast<VkResult>(failure.load()) : real(arguments...);
  }
  static PFN_vkVoidFunction wrap(const char* function, PFN_vkVoidFunction found) {
    if (found == nullptr) return nullptr;
    name = function;
    real = reinterpret_cast<decltype(real)>(found);
    return reinterpret_cast<PFN_vkVoidFunction>(&call);
  }
};

PFN_vkVoidFunction wrap(const char* name, PFN_vkVoidFunction found) {
#define TENON_VULKAN_WRAP(function)              \
  if (std::strcmp(name, "vk" #function) == 0)    \
    return Wrapped<__LINE__ * 1000 + __COUNTER__, PFN_vk##function>::wrap("vk" #function, found);
  TENON_VULKAN_GLOBAL_FUNCTIONS(TENON_VULKAN_WRAP)
  TENON_VULKAN_INSTANCE_FUNCTIONS(TENON_VULKAN_WRAP)
  TENON_VULKAN_DEVICE_FUNCTIONS(TENON_VULKAN_WRAP)
#undef TENON_VULKAN_WRAP
  return found;
}

PFN_vkVoidFunction VKAPI_PTR device_address(VkDevice of, const char* name) {
  device = of;
  return wrap(name, real_device_address(of, name));
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) PFN_vkVoidFunction vkGetInstanceProcAddr(
    VkInstance instance, const char* name) {
  static void* const library = ::dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
  static const auto real = reinterpret_cast<PFN_vkGetInstanceProcAddr>(
      library == nullptr ? nullptr : ::dlsym(library, "vkGetInstanceProcAddr"));
  if (real == nullptr) return nullptr;
  if (std::strcmp(name, "vkGetDeviceProcAddr") == 0) {
    real_device_address = reinterpret_cast<PFN_vkGetDeviceProcAddr>(real(instance, name));
    return reinterpret_cast<PFN_vkVoidFunction>(&device_address);
  }
  return wrap(name, real(instance, name));
}

__attribute__((visibility("default"))) void failing_loader_pretend(Lack what) { lack = what; }
__attribute__((visibility("default"))) void failing_loader_fail(std::uint64_t nth, int result) {
  failure = result;
  failed = nullptr;
  calls = 0;
  failing = nth;
}
__attribute__((visibility("default"))) std::uint64_t failing_loader_calls() { return calls; }
__attribute__((visibility("default"))) const char* failing_loader_failed() { return failed; }

}  // extern "C"
