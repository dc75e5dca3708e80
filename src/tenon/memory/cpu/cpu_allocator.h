// The allocator for host memory that is there from the start: the C library's, aligned.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tenon/base/spin_lock.h"
#include "tenon/memory/allocator.h"
#include "tenon/memory/observer.h"
#include "tenon/memory/stats.h"

namespace tenon {

// Of every block: a cache line, an AVX-512 load
inline constexpr std::size_t kCpuAlignment = 64;
inline constexpr std::size_t kMobileGuardBytes = 64; // readable before and after a mobile block

// malloc with 64-byte alignment, observers and statistics. Blocks are freed by their pointer alone,
// so the raw API works and a DataPtr's context is its data.
//
//   | header 64 B | guard | data, rounded up to 64 B ... | guard |
//                         ^ what the caller gets; guards are 0 B, on mobile 64 B, and zeroed
//
// The header is the allocator's own page-in-the-block (host memory may be written): a mark derived
// from the address, and the size. Freeing a pointer that is not such a block, or twice, throws
// InvalidPointer as long as the C library has not handed the memory out again: a help in debugging,
// no guarantee (the guard adaptor gives one).
//
// Failure: OutOfMemory when malloc refuses, InvalidArgument above kMaxRequestBytes.
// Thread-safe. Cost: one malloc and two short uncontended spin locks for the counters per pair.
class CpuAllocator : public Allocator {
 public:
  CpuAllocator(const CpuAllocator&) = delete;
  CpuAllocator& operator=(const CpuAllocator&) = delete;

  DataPtr allocate(std::size_t size_bytes) override;
  DeleterFn raw_deleter() const override { return deleter_; }
  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
    default_copy_data(dest, src, size_bytes);
  }

  // Allocated and reserved bytes include headers, guards and rounding.
  AllocatorStats stats() const;
  void reset_peak_stats();
  ObserverList& observers() { return observers_; }

 protected:
  CpuAllocator(std::size_t guard_bytes, DeleterFn deleter)
      : guard_bytes_(guard_bytes), deleter_(deleter) {}

  // What the deleters do: takes the block back. Throws InvalidPointer.
  void free_block(void* data);

 private:
  struct Header;
  std::uint64_t gross_bytes(std::size_t size_bytes) const;
  [[noreturn]] void throw_out_of_memory(std::size_t size_bytes);

  const std::size_t guard_bytes_;
  const DeleterFn deleter_;
  ObserverList observers_;
  alignas(64) mutable SpinLock lock_;  // on a line of its own, with what it guards
  AllocatorStats stats_;
};

// --- The allocator in use: what is registered for DeviceType::kCpu.
Allocator* get_cpu_allocator();
// set_allocator for DeviceType::kCpu.
void set_cpu_allocator(Allocator* allocator, std::uint8_t priority = 0);

// --- The two that come with Tenon. They live as long as the program.
CpuAllocator* get_default_cpu_allocator();
// For vector code that loads whole registers and so reads past both ends of its operands:
// kMobileGuardBytes before and after every block may be read, and are zero at first.
CpuAllocator* get_default_mobile_cpu_allocator();

// A block of the default allocator by bare pointer; null for zero bytes.
void* alloc_cpu(std::size_t size_bytes);
// Frees what alloc_cpu or the default allocator gave; null is ignored. Throws InvalidPointer.
void free_cpu(void* data);

}  // namespace tenon
