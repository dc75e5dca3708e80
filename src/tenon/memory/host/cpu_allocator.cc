#include "tenon/memory/host/cpu_allocator.h"

#include <algorithm>
#include <cstring>

#include "tenon/memory/registry.h"

namespace tenon {
namespace {

void free_mobile(void* data) {
  if (data == nullptr) return;
  host_allocator().raw_deallocate(static_cast<char*>(data) - kMobileGuardBytes);
}

}  // namespace

DataPtr CpuAllocator::allocate(std::size_t size_bytes) {
  const Device device = memory_.device();
  if (guard_bytes_ == 0 || size_bytes == 0 || size_bytes > kMaxRequestBytes) {
    void* data = memory_.raw_allocate(size_bytes);
    return data == nullptr ? DataPtr(device) : DataPtr(data, data, deleter_, device);
  }
  // No machine has the largest request: it fails with or without its guards.
  const auto gross = std::min<std::uint64_t>(size_bytes + 2 * guard_bytes_, kMaxRequestBytes);
  char* const memory = static_cast<char*>(memory_.raw_allocate(gross));
  char* const data = memory + guard_bytes_;
  std::memset(memory, 0, guard_bytes_);
  std::memset(data + size_bytes, 0, guard_bytes_);
  return DataPtr(data, data, deleter_, device);
}

std::size_t CpuAllocator::usable_size(const DataPtr& data) const {
  if (data == nullptr || data.get_deleter() != deleter_) return 0;
  const std::size_t gross =
      memory_.raw_usable_size(static_cast<const char*>(data.get()) - guard_bytes_);
  return gross - std::min(gross, 2 * guard_bytes_);
}

CpuAllocator* get_default_cpu_allocator() {
  static auto* const allocator = new CpuAllocator(0, &free_cpu);
  return allocator;
}

CpuAllocator* get_default_mobile_cpu_allocator() {
  static auto* const allocator = new CpuAllocator(kMobileGuardBytes, &free_mobile);
  return allocator;
}

Allocator* get_cpu_allocator() { return get_allocator(DeviceType::kCpu); }

void set_cpu_allocator(Allocator* allocator, std::uint8_t priority) {
  set_allocator(DeviceType::kCpu, allocator, priority);
}

void* alloc_cpu(std::size_t size_bytes) { return host_allocator().raw_allocate(size_bytes); }

void free_cpu(void* data) { host_allocator().raw_deallocate(data); }

}  // namespace tenon
