#include "tenon/tensor/interop/standard.h"

#include <fmt/format.h>

#include <new>

#include "tenon/base/align.h"
#include "tenon/base/error.h"

namespace tenon {
namespace {

// In front of each block: what frees it. As large as the strongest alignment that is served.
struct alignas(64) Header {
  DataPtr data;
};
static_assert(sizeof(Header) == 64);

}  // namespace

void detail::check_span(const Tensor& tensor) {
  if (tensor.device().type != DeviceType::kCpu || !tensor.is_contiguous())
    throw InvalidArgument(fmt::format(
        "as_span: shape {} with strides {} on {}; take a contiguous tensor on the cpu",
        to_string(tensor.sizes()), to_string(tensor.strides()), to_string(tensor.device())));
}

void* AllocatorResource::do_allocate(std::size_t size_bytes, std::size_t alignment) {
  if (alignment > alignof(Header) || size_bytes > kMaxRequestBytes) throw std::bad_alloc();
  DataPtr data = allocator_.allocate(sizeof(Header) + size_bytes);
  if (!is_aligned(reinterpret_cast<std::uintptr_t>(data.get()), alignof(Header)))
    throw std::bad_alloc();
  void* memory = data.get();
  ::new (memory) Header{std::move(data)};
  return static_cast<char*>(memory) + sizeof(Header);
}

void AllocatorResource::do_deallocate(void* data, std::size_t, std::size_t) {
  auto* header = reinterpret_cast<Header*>(static_cast<char*>(data) - sizeof(Header));
  const DataPtr last = std::move(header->data);  // frees the header with the block
}

}  // namespace tenon
