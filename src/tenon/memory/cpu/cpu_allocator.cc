#include "tenon/memory/cpu/cpu_allocator.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/base/hash.h"
#include "tenon/memory/registry.h"

namespace tenon {

// In the 64 bytes before the guard. The mark stands behind the first 16 bytes, which malloc
// overwrites in a free block, so that a second free finds it cleared.
struct alignas(kCpuAlignment) CpuAllocator::Header {
  std::uint64_t left_to_malloc[4];
  std::uint64_t mark;  // mark_of the header's address while the block is in use
  std::uint64_t size_bytes;

  static std::uint64_t mark_of(const Header* header) {
    return mix64(reinterpret_cast<std::uintptr_t>(header) ^ 0x74656e6f6e637075ULL);
  }
};

std::uint64_t CpuAllocator::gross_bytes(std::size_t size_bytes) const {
  return sizeof(Header) + 2 * guard_bytes_ + align_up(size_bytes, kCpuAlignment);
}

DataPtr CpuAllocator::allocate(std::size_t size_bytes) {
  const Device device{};
  if (size_bytes == 0) return DataPtr(device);
  if (size_bytes > kMaxRequestBytes)
    throw InvalidArgument(fmt::format("allocate: {} bytes is more than any request may be ({})",
                                      size_bytes, format_byte_size(kMaxRequestBytes)));
  const std::uint64_t gross = gross_bytes(size_bytes);
  void* memory = std::aligned_alloc(kCpuAlignment, gross);
  if (memory == nullptr) throw_out_of_memory(size_bytes);
  auto* header = static_cast<Header*>(memory);
  header->mark = Header::mark_of(header);
  header->size_bytes = size_bytes;
  char* data = static_cast<char*>(memory) + sizeof(Header) + guard_bytes_;
  if (guard_bytes_ > 0) {
    std::memset(data - guard_bytes_, 0, guard_bytes_);
    // The rounding counts as guard too: what is read past the end is zero.
    std::memset(data + size_bytes, 0, static_cast<char*>(memory) + gross - (data + size_bytes));
  }
  {
    const std::lock_guard lock(lock_);
    for (auto* pools : {&stats_.allocation, &stats_.active, &stats_.segment})
      (*pools)[0].increase(1);
    for (auto* pools : {&stats_.allocated_bytes, &stats_.active_bytes, &stats_.reserved_bytes})
      (*pools)[0].increase(static_cast<std::int64_t>(gross));
    stats_.requested_bytes[0].increase(static_cast<std::int64_t>(size_bytes));
    ++stats_.num_device_alloc;
  }
  observers_.report(MemoryEvent::kAllocated, data, size_bytes, Stream{device, 0});
  return DataPtr(data, data, deleter_, device);
}

void CpuAllocator::free_block(void* data) {
  auto* header =
      reinterpret_cast<Header*>(static_cast<char*>(data) - guard_bytes_ - sizeof(Header));
  if (!is_aligned(reinterpret_cast<std::uintptr_t>(data), kCpuAlignment) ||
      header->mark != Header::mark_of(header))
    throw InvalidPointer(fmt::format(
        "free: {} is no block of this CPU allocator, was freed already, or the {} bytes before it "
        "were overwritten",
        data, sizeof(Header) + guard_bytes_));
  const std::size_t size_bytes = header->size_bytes;
  // Volatile, or the compiler drops a store to memory that is freed next.
  *static_cast<volatile std::uint64_t*>(&header->mark) = 0;
  std::free(header);
  {
    const std::lock_guard lock(lock_);
    const auto gross = static_cast<std::int64_t>(gross_bytes(size_bytes));
    for (auto* pools : {&stats_.allocation, &stats_.active, &stats_.segment})
      (*pools)[0].decrease(1);
    for (auto* pools : {&stats_.allocated_bytes, &stats_.active_bytes, &stats_.reserved_bytes})
      (*pools)[0].decrease(gross);
    stats_.requested_bytes[0].decrease(static_cast<std::int64_t>(size_bytes));
    ++stats_.num_device_free;
  }
  for (const MemoryEvent event : {MemoryEvent::kFreed, MemoryEvent::kReleased})
    observers_.report(event, data, size_bytes, Stream{});
}

void CpuAllocator::throw_out_of_memory(std::size_t size_bytes) {
  OutOfMemoryDetails details;
  {
    const std::lock_guard lock(lock_);
    ++stats_.num_ooms;
    details.allocated_bytes = static_cast<std::uint64_t>(stats_.allocated_bytes[0].current);
    details.reserved_bytes = static_cast<std::uint64_t>(stats_.reserved_bytes[0].current);
  }
  observers_.report(MemoryEvent::kAllocationFailed, nullptr, size_bytes, Stream{});
  details.allocator = "cpu";
  details.device = to_string(Device{});
  details.requested_bytes = size_bytes;
  details.advice = "the system refused the memory: free some, or raise the limit (ulimit -v)";
  throw OutOfMemory(std::move(details));
}

AllocatorStats CpuAllocator::stats() const {
  const std::lock_guard lock(lock_);
  return stats_;
}

void CpuAllocator::reset_peak_stats() {
  const std::lock_guard lock(lock_);
  reset_peaks(stats_);
}

namespace {

// An allocator that lives as long as the program (never destroyed: static destructors free, too),
// whose deleter finds it without a context.
template <std::size_t kGuardBytes>
class ProgramCpuAllocator final : public CpuAllocator {
 public:
  static ProgramCpuAllocator& instance() {
    static ProgramCpuAllocator& allocator = *new ProgramCpuAllocator;
    return allocator;
  }

 private:
  ProgramCpuAllocator() : CpuAllocator(kGuardBytes, &free_one) {}
  static void free_one(void* data) { instance().free_block(data); }
};

}  // namespace

CpuAllocator* get_default_cpu_allocator() { return &ProgramCpuAllocator<0>::instance(); }

CpuAllocator* get_default_mobile_cpu_allocator() {
  return &ProgramCpuAllocator<kMobileGuardBytes>::instance();
}

Allocator* get_cpu_allocator() { return get_allocator(DeviceType::kCpu); }

void set_cpu_allocator(Allocator* allocator, std::uint8_t priority) {
  set_allocator(DeviceType::kCpu, allocator, priority);
}

void* alloc_cpu(std::size_t size_bytes) {
  return get_default_cpu_allocator()->raw_allocate(size_bytes);
}

void free_cpu(void* data) { get_default_cpu_allocator()->raw_deallocate(data); }

}  // namespace tenon
