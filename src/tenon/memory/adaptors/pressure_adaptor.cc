#include "tenon/memory/adaptors/pressure_adaptor.h"

namespace tenon {

template <typename Base>
DataPtr PressureAdaptor<Base>::serve(std::size_t size_bytes, Stream stream) {
  const std::uint64_t low = watermarks_.low_limit_bytes();
  if (size_bytes <= kMaxRequestBytes && this->used_bytes() + size_bytes > low)
    callbacks_.relieve(this->used_bytes() + size_bytes - low);
  const std::uint64_t high = watermarks_.high_limit_bytes();
  if (!this->reserve(size_bytes, high))
    this->refuse_above(high, size_bytes, stream,
                       "free blocks, add a callback that frees memory, or raise the high mark "
                       "(watermarks().set_high_ratio)");
  return this->serve_reserved(size_bytes, stream, [&] { return ask_upstream(size_bytes, stream); });
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

template class PressureAdaptor<Allocator>;
template class PressureAdaptor<DeviceAllocator>;

}  // namespace tenon
