#include "tenon/memory/gpu/cuda_allocator.h"

#include <map>
#include <mutex>

#include "tenon/device/cuda/cuda_backend.h"
#include "tenon/memory/gpu/caching_allocator.h"
#include "tenon/memory/gpu/pinned_allocator.h"
#include "tenon/memory/gpu/stitched_allocator.h"

namespace tenon {

DeviceAllocator& cuda_allocator(int index) {
  static std::mutex mutex;
  static auto& allocators = *new std::map<int, DeviceAllocator*>();
  const std::lock_guard lock(mutex);
  DeviceAllocator*& allocator = allocators[index];
  if (allocator == nullptr) {
    CudaBackend& backend = cuda_backend(index);
    if (backend.limits().has_virtual_memory)
      allocator = new StitchedAllocator(backend);
    else
      allocator = new CachingAllocator(backend);
  }
  return *allocator;
}

PinnedAllocator& pinned_allocator(int index) {
  static std::mutex mutex;
  static auto& allocators = *new std::map<int, PinnedAllocator*>();
  const std::lock_guard lock(mutex);
  PinnedAllocator*& allocator = allocators[index];
  if (allocator == nullptr) allocator = new PinnedAllocator(cuda_backend(index));
  return *allocator;
}

}  // namespace tenon
