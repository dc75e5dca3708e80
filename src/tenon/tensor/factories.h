// Fresh tensors. Thread-safe. O(elements) where elements are written, else O(dimensions).
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "tenon/memory/data_ptr.h"
#include "tenon/tensor/tensor.h"

namespace tenon {

// All take their bytes from current_allocator(device) (memory/registry.h). On the meta device there
// are shapes and no bytes.
// Sizes that are negative, or whose product overflows, throw InvalidArgument; lack of memory
// throws OutOfMemory.

// Uninitialised.
Tensor empty(IntList sizes, DType dtype = DType::kF32, Device device = {});
// In another order of dimensions.
Tensor empty(IntList sizes, DType dtype, Device device, MemoryFormat format);
Tensor empty_strided(IntList sizes, IntList strides, DType dtype = DType::kF32, Device device = {});
// Its bytes come at the first access.
Tensor empty_lazy(IntList sizes, DType dtype = DType::kF32, Device device = {});
// Shape, dtype, device and order of another.
Tensor empty_like(const Tensor& like);
Tensor empty_like(const Tensor& like, DType dtype);
// A meta tensor whose sizes are expressions; shapes are computed with their hints.
Tensor empty_symbolic(std::span<const SymInt> sizes, DType dtype = DType::kF32);

// Filled with a value, with 0 or 1; _like: shape, dtype, device and order of another. The value is
// converted as convert_element does.
Tensor full(IntList sizes, const Scalar& value, DType dtype = DType::kF32, Device device = {});
Tensor zeros(IntList sizes, DType dtype = DType::kF32, Device device = {});
Tensor ones(IntList sizes, DType dtype = DType::kF32, Device device = {});
Tensor zeros_like(const Tensor& like);
Tensor ones_like(const Tensor& like);

// start, start + step, ... below end. Throws InvalidArgument for a step of 0 or of the wrong sign.
Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step = 1,
              DType dtype = DType::kI64);
inline Tensor arange(const Scalar& end, DType dtype = DType::kI64) {
  return arange(0, end, 1, dtype);
}
// `count` values from start to end, both included.
Tensor linspace(double start, double end, std::int64_t count, DType dtype = DType::kF32);
Tensor eye(std::int64_t rows, std::int64_t columns = -1, DType dtype = DType::kF32);

// A 0-d tensor. `wrapped_number`: counts as a plain number in type promotion.
Tensor scalar_tensor(const Scalar& value, DType dtype);
Tensor wrapped_number(const Scalar& value);

// Values from C++: tensor<float>({1, 2, 3}, {3}). Throws InvalidArgument where the count does not
// fit the sizes.
template <Element T>
Tensor tensor(std::span<const T> values, IntList sizes);
template <Element T>
Tensor tensor(std::initializer_list<T> values, IntList sizes) {
  return tensor<T>(std::span<const T>(values.begin(), values.size()), sizes);
}
// One-dimensional.
template <Element T>
Tensor tensor(std::initializer_list<T> values) {
  return tensor<T>(values, {static_cast<std::int64_t>(values.size())});
}

// Over memory that other code owns; the DataPtr's deleter runs with the last reference.
// Strides in elements. Throws InvalidArgument where the geometry reaches beyond `size_bytes`.
Tensor from_blob(DataPtr data, std::size_t size_bytes, IntList sizes, IntList strides, DType dtype);
// Borrowed and contiguous: it must outlive the tensor and its views.
Tensor from_blob(void* data, IntList sizes, DType dtype);

namespace detail {
Tensor tensor_from(const void* values, std::size_t count, IntList sizes, DType dtype);
}

template <Element T>
Tensor tensor(std::span<const T> values, IntList sizes) {
  return detail::tensor_from(values.data(), values.size(), sizes, dtype_of<T>());
}

}  // namespace tenon
