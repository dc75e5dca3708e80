// The memory-model document in its own spelling: c10::Allocator, c10::GetCPUAllocator and so on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "tenon/memory/gpu/cuda_allocator.h"
#include "tenon/memory/host/cpu_allocator.h"
#include "tenon/memory/registry.h"
#include "tenon/memory/unified/unified_allocator.h"
#include "tenon/tensor/compat/mps_names.h"
#include "tenon/tensor/storage.h"

// Not reproduced: IMPSAllocator as a base class (here it is names over a UnifiedAllocator);
// PyTorch's own device types beyond those below; DataPtr's conversion to bool without a test
// (`bool(ptr)`, `if (ptr)` work); functions on what device() returns (write c10::Device(p.device())
// to have them), nor on what device_type() returns; Storage::unsafeGetStorageImpl (here impl());
// ArrayRef of a list in braces; Python.
// A program that includes this cannot include PyTorch's headers too.
namespace c10 {

enum class DeviceType : std::uint8_t {
  CPU = static_cast<std::uint8_t>(tenon::DeviceType::kCpu),
  CUDA = static_cast<std::uint8_t>(tenon::DeviceType::kCuda),
  Vulkan = static_cast<std::uint8_t>(tenon::DeviceType::kVulkan),
  MPS = static_cast<std::uint8_t>(tenon::DeviceType::kMetal),
  XLA = static_cast<std::uint8_t>(tenon::DeviceType::kXla),
  Meta = static_cast<std::uint8_t>(tenon::DeviceType::kMeta),
};

// A kind of device and which of it; a tenon::Device wherever one is wanted, equal to one, and made
// from one.
class Device : public tenon::Device {
 public:
  Device(DeviceType type, std::int16_t index = 0)
      : tenon::Device{static_cast<tenon::DeviceType>(type), index} {}
  Device(tenon::Device device) : tenon::Device(device) {}
  // "cuda:1". Throws InvalidArgument for an unknown kind.
  explicit Device(const std::string& text) : tenon::Device(tenon::parse_device(text)) {}

  DeviceType type() const { return static_cast<DeviceType>(tenon::Device::type); }
  std::int16_t index() const { return tenon::Device::index; }
  bool is_cpu() const { return type() == DeviceType::CPU; }
  bool is_cuda() const { return type() == DeviceType::CUDA; }
  bool is_mps() const { return type() == DeviceType::MPS; }
  bool is_meta() const { return type() == DeviceType::Meta; }
  std::string str() const { return tenon::to_string(*this); }
};

using Allocator = tenon::Allocator;
using DataPtr = tenon::DataPtr;
using DeleterFnPtr = tenon::DeleterFn;
using SymInt = tenon::SymInt;
using IntArrayRef = tenon::IntList;
template <typename T>
using ArrayRef = std::span<const T>;
using Storage = tenon::Storage;
using StorageImpl = tenon::StorageImpl;
using intrusive_ptr_target = tenon::IntrusiveTarget;
template <typename T>
using intrusive_ptr = tenon::IntrusivePtr<T>;
template <typename T>
using weak_intrusive_ptr = tenon::WeakIntrusivePtr<T>;

// An object with a reference count.
template <typename T, typename... Arguments>
auto make_intrusive(Arguments&&... arguments) {
  return tenon::make_intrusive<T>(std::forward<Arguments>(arguments)...);
}

// The registry (registry.h) and the host's allocators (cpu_allocator.h).
inline void SetAllocator(DeviceType type, Allocator* allocator, std::uint8_t priority = 0) {
  tenon::set_allocator(static_cast<tenon::DeviceType>(type), allocator, priority);
}
inline Allocator* GetAllocator(DeviceType type) {
  return tenon::get_allocator(static_cast<tenon::DeviceType>(type));
}
inline Allocator* GetCPUAllocator() { return tenon::get_cpu_allocator(); }
inline void SetCPUAllocator(Allocator* allocator, std::uint8_t priority = 0) {
  tenon::set_cpu_allocator(allocator, priority);
}
inline Allocator* GetDefaultCPUAllocator() { return tenon::get_default_cpu_allocator(); }
inline Allocator* GetDefaultMobileCPUAllocator() {
  return tenon::get_default_mobile_cpu_allocator();
}
inline void* alloc_cpu(std::size_t size) { return tenon::alloc_cpu(size); }
inline void free_cpu(void* data) { tenon::free_cpu(data); }

}  // namespace c10

// Where the document writes at::.
namespace at {
using c10::Allocator;
using c10::DataPtr;
using c10::Device;
}  // namespace at

// At namespace scope: registers `allocator`, an expression for its address, for a c10::DeviceType.
#define REGISTER_ALLOCATOR(device_type, allocator)                                            \
  TENON_REGISTER_ALLOCATOR(static_cast<::tenon::DeviceType>(device_type), allocator)
