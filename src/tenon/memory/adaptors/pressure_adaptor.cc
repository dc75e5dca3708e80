#include "tenon/memory/adaptors/pressure_adaptor.h"

#include <algorithm>

namespace tenon {

template <typename Base>
void PressureAdaptor<Base>::relieve_to(std::uint64_t mark_bytes, std::uint64_t used_bytes) {
  if (used_bytes > mark_bytes) callbacks_.relieve(used_bytes - mark_bytes);
}

template <typename Base>
DataPtr PressureAdaptor<Base>::serve(std::size_t size_bytes, Stream stream) {
  if (size_bytes <= kMaxRequestBytes) relieve_to(watermarks_.low_limit_bytes(),
                                                 used_bytes() + size_bytes);
  const std::uint64_t used =
      used_bytes_.fetch_add(size_bytes, std::memory_order_relaxed) + size_bytes;
  try {
    if (used > watermarks_.high_limit_bytes()) {
      OutOfMemoryDetails details;
      details.allocated_bytes = details.reserved_bytes = used - size_bytes;
      details.limit_bytes = watermarks_.high_limit_bytes();
      details.largest_free_bytes =
          details.limit_bytes - std::min(details.limit_bytes, details.allocated_bytes);
      details.advice = "free blocks, add a callback that lets memory go, or raise the high mark "
                       "(watermarks().set_high_ratio)";
      this->refuse(size_bytes, stream, std::move(details));
    }
    DataPtr data = this->wrap(ask_upstream(size_bytes, stream), size_bytes, stream);
    if (data == nullptr) used_bytes_.fetch_sub(size_bytes, std::memory_order_relaxed);
    return data;
  } catch (...) {
    used_bytes_.fetch_sub(size_bytes, std::memory_order_relaxed);
    throw;
  }
}

template <typename Base>
DataPtr PressureAdaptor<Base>::ask_upstream(std::size_t size_bytes, Stream stream) {
  for (;;) {
    try {
      return this->from_upstream(size_bytes, stream);
    } catch (const OutOfMemory&) {
      if (callbacks_.relieve(size_bytes).freed_bytes == 0) throw;
    }
  }
}

template <typename Base>
void PressureAdaptor<Base>::take_back(std::unique_ptr<Block> block) {
  used_bytes_.fetch_sub(block->size_bytes, std::memory_order_relaxed);
  Adaptor<Base>::take_back(std::move(block));
}

template class PressureAdaptor<Allocator>;
template class PressureAdaptor<DeviceAllocator>;

}  // namespace tenon
