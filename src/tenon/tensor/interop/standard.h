// Tensors beside the standard library: spans of their elements, and their allocators for
// containers.
#pragma once

#include <memory_resource>
#include <span>

#include "tenon/tensor/tensor.h"

namespace tenon {

// The elements of a contiguous tensor on the host. Valid as long as the tensor. Throws
// InvalidArgument for another dtype, order or place.
template <Element T>
std::span<T> as_span(const Tensor& tensor);
// The same to read: copy-on-write bytes stay shared.
template <Element T>
std::span<const T> as_const_span(const Tensor& tensor);

namespace detail {
void check_span(const Tensor& tensor);
}

// A standard memory resource over an allocator of the host, so that std::pmr containers use the
// memory that tensors use. The allocator is not owned. Alignment up to 64 bytes; larger throws
// std::bad_alloc. Thread-safe as the allocator is. Costs a header of 64 bytes for each block.
class AllocatorResource final : public std::pmr::memory_resource {
 public:
  explicit AllocatorResource(Allocator& allocator) : allocator_(allocator) {}

 private:
  void* do_allocate(std::size_t size_bytes, std::size_t alignment) override;
  void do_deallocate(void* data, std::size_t size_bytes, std::size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    const auto* same = dynamic_cast<const AllocatorResource*>(&other);
    return same != nullptr && &same->allocator_ == &allocator_;
  }

  Allocator& allocator_;
};

template <Element T>
std::span<T> as_span(const Tensor& tensor) {
  detail::check_span(tensor);
  return {tensor.data_ptr<T>(), static_cast<std::size_t>(tensor.numel())};
}

template <Element T>
std::span<const T> as_const_span(const Tensor& tensor) {
  detail::check_span(tensor);
  return {tensor.const_data_ptr<T>(), static_cast<std::size_t>(tensor.numel())};
}

}  // namespace tenon
