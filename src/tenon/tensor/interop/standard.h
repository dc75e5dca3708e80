// Tensors beside the standard library: spans of their elements, and their allocators for
// containers.
#pragma once

#include <span>

#include "tenon/memory/standard_memory.h"
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
