#include "tenon/tensor/factories.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "tenon/base/align.h"
#include "tenon/base/error.h"
#include "tenon/memory/host/cpu_allocator.h"
#include "tenon/memory/registry.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/defined.h"
#include "tenon/tensor/dim_labels.h"
#include "tenon/tensor/host_access.h"
#include "tenon/tensor/meta_memory.h"

namespace tenon {
namespace {

[[noreturn, gnu::noinline]] void refuse_bytes(std::int64_t elements, DType dtype) {
  throw InvalidArgument(fmt::format("{} elements of {} are more bytes than any request may have",
                                    elements, dtype_name(dtype)));
}

// Item sizes are powers of two, so the check is a shift and a comparison.
inline std::size_t bytes_for(std::int64_t elements, DType dtype) {
  const int shift = std::countr_zero(item_size(dtype));
  if (static_cast<std::uint64_t>(elements) > (kMaxRequestBytes >> shift)) [[unlikely]]
    refuse_bytes(elements, dtype);
  return static_cast<std::size_t>(elements) << shift;
}

// The default allocator is host_allocator() by bare pointer. Held by its handle instead, the same
// block of the same allocator is freed without a search for its record.
inline DataPtr bytes_from(Allocator& source, std::size_t size_bytes) {
  if (&source == get_default_cpu_allocator()) [[likely]]
    return host_allocator().allocate(size_bytes);
  return source.allocate(size_bytes);
}

inline IntrusivePtr<StorageImpl> new_storage(std::size_t size_bytes, Device device) {
  const SymInt bytes = SymInt::fitting(static_cast<std::int64_t>(size_bytes));
  if (device.type == DeviceType::kMeta)
    return make_intrusive<StorageImpl>(StorageImpl::UseByteSize{}, bytes,
                                       detail::meta_block(bytes, device), nullptr, true);
  Allocator* const guarded = guarded_allocator(device);
  Allocator& source = guarded != nullptr ? *guarded : *registered_allocator(device);
  // A guard's allocator may end before the tensor: the storage does not remember it.
  auto storage = make_intrusive<StorageImpl>(StorageImpl::UseByteSize{}, bytes,
                                             bytes_from(source, size_bytes),
                                             guarded != nullptr ? nullptr : &source, true);
  if (device.type == DeviceType::kVulkan) [[unlikely]]
    storage->mark_untouched();
  return storage;
}

inline Tensor from_storage(IntrusivePtr<StorageImpl> storage, IntList sizes, std::int64_t numel,
                           DType dtype) {
  return Tensor(make_intrusive<TensorImpl>(std::move(storage), dtype, sizes, numel));
}

Tensor labelled_like(Tensor fresh, const Tensor& like) {
  if (detail::is_labelled(like)) [[unlikely]]
    detail::label_like(fresh, like);
  return fresh;
}

Tensor filled(Tensor fresh, const Scalar& value) {
  if (has_operators(fresh.device()))
    detail::fill_elements(fresh, value);
  else
    fill_(fresh, value);
  return fresh;
}

// The same of integers, which a double may not hold. Requires: a step that leads to the end.
std::int64_t integer_steps(std::int64_t start, std::int64_t end, std::int64_t step) {
  const auto bits = [](std::int64_t number) { return static_cast<std::uint64_t>(number); };
  const std::uint64_t distance = step > 0 ? bits(end) - bits(start) : bits(start) - bits(end);
  const std::uint64_t by = step > 0 ? bits(step) : std::uint64_t{0} - bits(step);
  return static_cast<std::int64_t>(distance / by + (distance % by > 0 ? 1 : 0));
}

// How many steps arange takes.
std::int64_t arange_length(double start, double end, double step) {
  if (!(step != 0) || !std::isfinite(start) || !std::isfinite(end) ||
      (step > 0 ? end < start : end > start))
    throw InvalidArgument(
        fmt::format("arange: from {} to {} by {}: the step must lead from the start to the end",
                    start, end, step));
  const double length = std::ceil((end - start) / step);
  if (length >= 9.2e18)
    throw InvalidArgument(fmt::format("arange: {} elements are too many", length));
  return static_cast<std::int64_t>(length);
}

}  // namespace

Tensor empty(IntList sizes, DType dtype, Device device) {
  const std::int64_t numel = checked_numel(sizes);
  Tensor result = from_storage(new_storage(bytes_for(numel, dtype), device), sizes, numel, dtype);
  if (device.type == DeviceType::kMeta) [[unlikely]]
    detail::label_known(result);
  return result;
}

Tensor empty(IntList sizes, DType dtype, Device device, MemoryFormat format) {
  if (format == MemoryFormat::kContiguous) return empty(sizes, dtype, device);
  return empty_strided(sizes, strides_for(sizes, format), dtype, device);
}

Tensor empty_strided(IntList sizes, IntList strides, DType dtype, Device device) {
  const std::int64_t numel = checked_numel(sizes);
  if (strides.size() != sizes.size())
    throw InvalidArgument(fmt::format("shape {} with strides {}: there must be as many of each",
                                      to_string(sizes), to_string(strides)));
  const std::int64_t reach = numel == 0 ? 0 : storage_elements(sizes, strides, 0);
  auto storage = new_storage(bytes_for(std::max<std::int64_t>(reach, 0), dtype), device);
  Tensor result(
      make_intrusive<TensorImpl>(Storage(std::move(storage)), dtype, sizes, strides, 0));
  if (device.type == DeviceType::kMeta) [[unlikely]]
    detail::label_known(result);
  return result;
}

Tensor empty_lazy(IntList sizes, DType dtype, Device device) {
  const std::int64_t numel = checked_numel(sizes);
  return from_storage(make_intrusive<StorageImpl>(StorageImpl::Lazy{}, bytes_for(numel, dtype),
                                                  device, nullptr, true),
                      sizes, numel, dtype);
}

Tensor empty_like(const Tensor& like) {
  detail::check_defined("empty_like", like);
  return empty_like(like, like.dtype());
}

Tensor empty_like(const Tensor& like, DType dtype) {
  detail::check_defined("empty_like", like);
  const bool is_plain = like.is_contiguous() || !like.is_non_overlapping_and_dense();
  return labelled_like(
      is_plain ? empty(like.sizes(), dtype, like.device())
               : empty_strided(like.sizes(), like.strides(), dtype, like.device()),
      like);
}

Tensor empty_symbolic(std::span<const SymInt> sizes, DType dtype) {
  DimVector hints;
  for (const SymInt& size : sizes) hints.push_back(size.hint());
  Tensor result = empty(hints, dtype, Device{DeviceType::kMeta, 0});
  detail::give_sym_sizes(result, {sizes.begin(), sizes.end()});
  return result;
}

Tensor full(IntList sizes, const Scalar& value, DType dtype, Device device) {
  return filled(empty(sizes, dtype, device), value);
}

Tensor zeros(IntList sizes, DType dtype, Device device) { return full(sizes, 0, dtype, device); }
Tensor ones(IntList sizes, DType dtype, Device device) { return full(sizes, 1, dtype, device); }
Tensor zeros_like(const Tensor& like) {
  detail::check_defined("zeros_like", like);
  return filled(empty_like(like), 0);
}
Tensor ones_like(const Tensor& like) {
  detail::check_defined("ones_like", like);
  return filled(empty_like(like), 1);
}

Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, DType dtype) {
  const auto is_integer = [](const Scalar& s) { return s.dtype() == DType::kI64; };
  std::int64_t length = arange_length(start.to<double>(), end.to<double>(), step.to<double>());
  if (is_integer(start) && is_integer(end) && is_integer(step))
    length = integer_steps(start.to<std::int64_t>(), end.to<std::int64_t>(),
                           step.to<std::int64_t>());
  Tensor result = empty({length}, dtype);
  visit_dtype(dtype, [&]<typename T>() {
    T* out = result.data_ptr<T>();
    const auto count_from = [&]<typename N>(N first, N by) {
      for (std::int64_t i = 0; i < length; ++i)
        out[i] = convert_element<T>(first + static_cast<N>(i) * by);
    };
    if (is_floating(dtype) || is_complex(dtype))
      count_from(start.to<double>(), step.to<double>());
    else
      count_from(start.to<std::int64_t>(), step.to<std::int64_t>());
  });
  return result;
}

Tensor linspace(double start, double end, std::int64_t count, DType dtype) {
  Tensor result = empty({count}, dtype);
  visit_dtype(dtype, [&]<typename T>() {
    T* out = result.data_ptr<T>();
    // From both ends, so that both are exact.
    const double step = count > 1 ? (end - start) / static_cast<double>(count - 1) : 0;
    for (std::int64_t i = 0; i < count; ++i)
      out[i] = convert_element<T>(i < count / 2 || count == 1
                                      ? start + step * static_cast<double>(i)
                                      : end - step * static_cast<double>(count - 1 - i));
  });
  return result;
}

Tensor eye(std::int64_t rows, std::int64_t columns, DType dtype) {
  Tensor result = zeros({rows, columns < 0 ? rows : columns}, dtype);
  if (result.numel() > 0) detail::fill_elements(result.diagonal(), 1);
  return result;
}

Tensor scalar_tensor(const Scalar& value, DType dtype) { return full({}, value, dtype); }

Tensor wrapped_number(const Scalar& value) {
  Tensor number = scalar_tensor(value, value.dtype());
  number.impl()->set_wrapped_number(true);
  return number;
}

Tensor detail::tensor_from(const void* values, std::size_t count, IntList sizes, DType dtype) {
  Tensor result = empty(sizes, dtype);
  if (count != static_cast<std::size_t>(result.numel()))
    throw InvalidArgument(fmt::format("tensor: {} values for shape {}", count, to_string(sizes)));
  if (count > 0) std::memcpy(result.data_ptr(), values, result.nbytes());
  return result;
}

Tensor from_blob(DataPtr data, std::size_t size_bytes, IntList sizes, IntList strides,
                 DType dtype) {
  return Tensor(
      make_intrusive<TensorImpl>(Storage(size_bytes, std::move(data)), dtype, sizes, strides, 0));
}

Tensor from_blob(void* data, IntList sizes, DType dtype) {
  return from_blob(DataPtr(data, Device{}), bytes_for(checked_numel(sizes), dtype), sizes,
                   strides_for(sizes), dtype);
}

}  // namespace tenon
