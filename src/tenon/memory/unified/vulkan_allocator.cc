#include "tenon/memory/unified/vulkan_allocator.h"

#include <map>
#include <mutex>

#include "tenon/device/vulkan/vulkan_backend.h"
#include "tenon/memory/unified/unified_allocator.h"

namespace tenon {

DeviceAllocator& vulkan_allocator(int index) {
  static std::mutex mutex;
  static auto& allocators = *new std::map<int, DeviceAllocator*>();
  const std::lock_guard lock(mutex);
  DeviceAllocator*& allocator = allocators[index];
  if (allocator == nullptr) {
    VulkanBackend& backend = vulkan_backend(index);
    UnifiedOptions options;
    options.alignment = backend.limits().alignment;
    options.grow_by_shares();
    allocator = new UnifiedAllocator(backend, options);
  }
  return *allocator;
}

}  // namespace tenon
