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

dnnl::memory::dims sizes_of(const dnnl::memory::desc& desc) {
#if DNNL_VERSION_MAJOR >= 3
  return desc.get_dims();
#else
  return desc.dims();
#endif
}

std::int64_t block_length(const dnnl::memory::desc& desc, int dimension) {
#if DNNL_VERSION_MAJOR >= 3
  const auto blocks = static_cast<std::size_t>(desc.get_inner_nblks());
  const dnnl::memory::dims dimensions = desc.get_inner_idxs(), lengths = desc.get_inner_blks();
#else
  const dnnl_blocking_desc_t& layout = desc.data.format_desc.blocking;
  const auto blocks = static_cast<std::size_t>(layout.inner_nblks);
  const auto &dimensions = layout.inner_idxs, &lengths = layout.inner_blks;
#endif
  std::int64_t length = 1;
  for (std::size_t i = 0; i < blocks; ++i)
    if (dimensions[i] == dimension) length *= lengths[i];
  return length;
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
