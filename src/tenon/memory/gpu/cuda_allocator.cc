#include "tenon/memory/gpu/cuda_allocator.h"

#include <map>
#include <mutex>

#include "tenon/device/cuda/cuda_backend.h"
#include "tenon/memory/gpu/caching_allocator.h"
#include "tenon/memory/gpu/pinned_allocator.h"
#include "tenon/memory/gpu/stitched_allocator.h"

namespace tenon {
namespace {

template <typename Made, typename Make>
Made& of_device(int index, Make&& make) {
  static std::mutex mutex;
  static auto& allocators = *new std::map<int, Made*>();
  const std::lock_guard lock(mutex);
  Made*& allocator = allocators[index];
  if (allocator == nullptr) allocator = make(cuda_backend(index));
  return *allocator;
}

}  // namespace

DeviceAllocator& cuda_allocator(int index) {
  return of_device<DeviceAllocator>(index, [](CudaBackend& backend) -> DeviceAllocator* {
    if (backend.limits().has_virtual_memory) return new StitchedAllocator(backend);
    return new CachingAllocator(backend);
  });
}

PinnedAllocator& pinned_allocator(int index) {
  return of_device<PinnedAllocator>(
      index, [](CudaBackend& backend) { return new PinnedAllocator(backend); });
}

}  // namespace tenon
