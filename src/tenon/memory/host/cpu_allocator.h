// The allocator for host memory that is there from the start: blocks freed by their pointer alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tenon/memory/host/host_allocator.h"

namespace tenon {

inline constexpr std::size_t kCpuAlignment = 64;      // of every block: a cache line
inline constexpr std::size_t kMobileGuardBytes = 64;  // readable before and after a mobile block

// host_allocator(), by bare pointer: a DataPtr's context is its data, and raw_deleter frees it, so
// the raw API works through every wrapper. Statistics and observers are host_allocator()'s.
//
//   | guard | data ... | guard |     guards are 0 B, on mobile 64 B and zeroed
//           ^ what the caller gets
//
// Failure: OutOfMemory when there is no memory, InvalidArgument above kMaxRequestBytes. Freeing a
// pointer that is no block in use throws InvalidPointer and changes nothing.
// Thread-safe. Never destroyed. Complexity: host_allocator()'s.
class CpuAllocator final : public Allocator {
 public:
  CpuAllocator(const CpuAllocator&) = delete;
  CpuAllocator& operator=(const CpuAllocator&) = delete;

  DataPtr allocate(std::size_t size_bytes) override;
  DeleterFn raw_deleter() const override { return deleter_; }
  std::size_t alignment() const override { return kCpuAlignment; }
  // Up to the guard behind; 0 for a block of another allocator.
  std::size_t usable_size(const DataPtr& data) const override;
  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
    default_copy_data(dest, src, size_bytes);
  }

  // host_allocator()'s, which all wrappers share.
  AllocatorStats stats() const { return memory_.stats(); }
  void reset_peak_stats() { memory_.reset_peak_stats(); }
  ObserverList& observers() { return memory_.observers(); }

 private:
  friend CpuAllocator* get_default_cpu_allocator();
  friend CpuAllocator* get_default_mobile_cpu_allocator();
  CpuAllocator(std::size_t guard_bytes, DeleterFn deleter)
      : memory_(host_allocator()), guard_bytes_(guard_bytes), deleter_(deleter) {}

  HostAllocator& memory_;
  const std::size_t guard_bytes_;
  const DeleterFn deleter_;
};

// --- The allocator in use: what is registered for DeviceType::kCpu (registry.h), or else the
// default one.
Allocator* get_cpu_allocator();
// set_allocator for DeviceType::kCpu.
void set_cpu_allocator(Allocator* allocator, std::uint8_t priority = 0);

// --- The two that come with Tenon. They live as long as the program.
CpuAllocator* get_default_cpu_allocator();
// For vector code that loads whole registers and so reads past both ends of its operands.
// kMobileGuardBytes before and after every block may be read, and are zero at first.
CpuAllocator* get_default_mobile_cpu_allocator();

// A block of the default allocator by bare pointer; null for zero bytes.
void* alloc_cpu(std::size_t size_bytes);
// Frees what alloc_cpu or the default allocator gave; null is ignored. Throws InvalidPointer.
void free_cpu(void* data);

}  // namespace tenon
