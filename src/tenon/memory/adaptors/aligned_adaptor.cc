#include "tenon/memory/adaptors/aligned_adaptor.h"

#include <fmt/format.h>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"

namespace tenon {

template <typename Base>
AlignedAdaptor<Base>::AlignedAdaptor(std::type_identity_t<Base>& upstream, std::uint64_t alignment)
    : Adaptor<Base>(upstream), alignment_(alignment) {
  if (!is_power_of_two(alignment) || alignment > kMaxAlignment)
    throw InvalidArgument(fmt::format("alignment {} is no power of two from 1 to {}", alignment,
                                      format_byte_size(kMaxAlignment)));
}

template <typename Base>
DataPtr AlignedAdaptor<Base>::serve(std::size_t size_bytes, Stream stream) {
  if (size_bytes > kMaxRequestBytes)
    throw InvalidArgument(fmt::format("allocate: {} bytes is more than any request may be ({})",
                                      size_bytes, format_byte_size(kMaxRequestBytes)));
  const std::size_t padded = size_bytes == 0 ? 0 : size_bytes + alignment_ - 1;
  DataPtr inner = this->padded_from_upstream(padded, size_bytes, stream);
  const auto address = reinterpret_cast<std::uintptr_t>(inner.get());
  auto* data = reinterpret_cast<void*>(align_up(address, alignment_));
  return this->wrap(std::move(inner), size_bytes, stream,
                    std::make_unique<typename AdaptorCore<Base>::Block>(), data);
}

template class AlignedAdaptor<Allocator>;
template class AlignedAdaptor<DeviceAllocator>;

}  // namespace tenon
