#include "tenon/ops/kernels/cpu/onednn_engine.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdint>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/device/os/os_memory.h"

namespace tenon::ops::cpu {

dnnl::engine& cpu_engine() {
  static auto& engine = *new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

void require_memory_for_code() {
  constexpr std::uint64_t kBytes = 16 << 20;  // a primitive has up to some twenty kernels
  void* const room = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE | PROT_EXEC,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room != MAP_FAILED) {
    ::munmap(room, kBytes);
    return;
  }
  OutOfMemoryDetails details;
  details.allocator = "oneDNN";
  details.device = "cpu:0";
  details.requested_bytes = kBytes;
  const std::uint64_t limit = os::address_limit_bytes();
  details.advice =
      limit == 0 ? "the code of a product or a convolution needs this memory"
                 : fmt::format("the code of a product or a convolution needs this memory: raise "
                               "the limit of {} of addresses (ulimit -v)",
                               format_byte_size(limit));
  throw OutOfMemory(std::move(details));
}

}  // namespace tenon::ops::cpu
