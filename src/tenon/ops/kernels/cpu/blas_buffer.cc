#include "tenon/ops/kernels/cpu/blas_buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdint>
#include <mutex>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/device/os/os_memory.h"

namespace tenon::ops::cpu {
namespace {

// The largest BUFFER_SIZE of OpenBLAS on 64-bit processors, and room for its alignment.
constexpr std::uint64_t kBufferBytes = (128 << 20) + (1 << 16);

[[noreturn]] void throw_no_buffer() {
  OutOfMemoryDetails details;
  details.allocator = "OpenBLAS";
  details.device = "cpu:0";
  details.requested_bytes = kBufferBytes;
  const std::uint64_t limit = os::address_limit_bytes();
  details.advice = fmt::format(
      "each thread that multiplies matrices needs one such buffer: {}use fewer threads "
      "(TENON_NUM_THREADS)",
      limit == 0 ? ""
                 : fmt::format("raise the limit of {} of addresses (ulimit -v), or ",
                               format_byte_size(limit)));
  throw OutOfMemory(std::move(details));
}

}  // namespace

BlasCall::Calls BlasCall::of_[2];

void BlasCall::Calls::enter() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (running.load() >= tested) {
    // As OpenBLAS maps it. Not os::allocate(): that counts as a driver call of Tenon's allocators.
    void* const buffer = ::mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED) throw_no_buffer();
    ::munmap(buffer, kBufferBytes);
    if (++tested >= num_threads()) all_tested.store(true, std::memory_order_relaxed);
  }
  running.fetch_add(1);
}

}  // namespace tenon::ops::cpu
