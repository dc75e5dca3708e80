#include "tenon/ops/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tenon/base/parallel.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/reduce.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/promotion.h"

namespace tenon::ops {
namespace {

template <typename T>
void choose_block(void* out, const void* const* in, std::int64_t count, const double*) {
  const auto* condition = static_cast<const bool*>(in[0]);
  const auto* a = static_cast<const T*>(in[1]);
  const auto* b = static_cast<const T*>(in[2]);
  auto* result = static_cast<T*>(out);
  for (std::int64_t i = 0; i < count; ++i) result[i] = condition[i] ? a[i] : b[i];
}

// Indices as int64, dense and checked against the size they index. On meta they cannot be seen.
Tensor checked_indices(const char* what, const Tensor& index, std::int64_t size) {
  if (!is_integral(index.dtype()))
    throw InvalidArgument(
        fmt::format("{}: an index of {}; take integers", what, dtype_name(index.dtype())));
  const Tensor dense = contiguous(to(index, DType::kI64));
  if (dense.is_meta() || dense.numel() == 0) return dense;
  const std::int64_t* values = dense.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < dense.numel(); ++i)
    if (values[i] < 0 || values[i] >= size) [[unlikely]]
      throw InvalidArgument(
          fmt::format("{}: index {} for a dimension of size {}", what, values[i], size));
  return dense;
}

void check_index_1d(const char* what, const Tensor& index) {
  if (index.dim() > 1)
    throw InvalidArgument(fmt::format("{}: an index of shape {}; take one dimension", what,
                                      to_string(index.sizes())));
}

template <typename T>
T sum_of(T a, T b) {
  if constexpr (std::is_same_v<T, bool>)
    return a || b;
  else
    return static_cast<T>(a + b);
}

// Sizes around a dimension: [outer, size, inner].
struct Split {
  std::int64_t outer = 1, size = 1, inner = 1;
};
Split split_at(IntList sizes, std::int64_t dim) {
  Split split;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (static_cast<std::int64_t>(d) < dim) split.outer *= sizes[d];
    if (static_cast<std::int64_t>(d) == dim) split.size = sizes[d];
    if (static_cast<std::int64_t>(d) > dim) split.inner *= sizes[d];
  }
  return split;
}

// Copies whole rows of the innermost dimensions.
void select_rows(const Tensor& out, const Tensor& a, const Tensor& index, std::int64_t dim) {
  const Split split = split_at(a.sizes(), dim);
  const std::int64_t chosen = index.numel();
  const std::size_t bytes = static_cast<std::size_t>(split.inner) * a.item_size();
  const auto* from = static_cast<const char*>(a.const_data_ptr());
  auto* target = static_cast<char*>(out.data_ptr());
  const std::int64_t* at = index.const_data_ptr<std::int64_t>();
  parallel_for(0, split.outer * chosen,
               std::max<std::int64_t>(1, 65536 / static_cast<std::int64_t>(bytes + 1)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   const std::int64_t row = i / chosen * split.size + at[i % chosen];
                   std::memcpy(target + static_cast<std::size_t>(i) * bytes,
                               from + static_cast<std::size_t>(row) * bytes, bytes);
                 }
               });
}

void check_gather_shape(const char* what, const Tensor& a, const Tensor& index, std::int64_t dim) {
  bool fits = index.dim() == a.dim();
  for (std::int64_t d = 0; fits && d < a.dim(); ++d) fits = d == dim || index.size(d) <= a.size(d);
  if (!fits)
    throw InvalidArgument(
        fmt::format("{}: an index of shape {} for shape {}; it may be larger in dimension {} only",
                    what, to_string(index.sizes()), to_string(a.sizes()), dim));
}

// Where each element of an index reaches in a dense tensor: visit(position in the index, offset).
template <typename Visit>
void for_gathered(const Tensor& index, const Tensor& dense, std::int64_t dim, Visit&& visit) {
  const std::int64_t* values = index.const_data_ptr<std::int64_t>();
  DimVector at(static_cast<std::size_t>(index.dim()), 0);
  const auto along = static_cast<std::size_t>(dim);
  for (std::int64_t i = 0; i < index.numel(); ++i) {
    std::int64_t offset = at.empty() ? 0 : values[i] * dense.strides()[along];
    for (std::size_t d = 0; d < at.size(); ++d)
      if (d != along) offset += at[d] * dense.strides()[d];
    visit(i, offset);
    for (std::size_t d = at.size(); d-- > 0;) {
      if (++at[d] < index.sizes()[d]) break;
      at[d] = 0;
    }
  }
}

}  // namespace

Tensor detail::where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const Device device = common_device("where", {&condition, &a, &b});
  if (condition.dtype() != DType::kBool)
    throw InvalidArgument(
        fmt::format("where: a condition of {}; compare first", dtype_name(condition.dtype())));
  const DType dtype = result_type(a, b);
  const DimVector sizes =
      broadcast_sizes(condition.sizes(), broadcast_sizes(a.sizes(), b.sizes(), "where"), "where");
  Tensor out = empty(sizes, dtype, device);
  ElementwisePlan plan;
  plan.input_count = 3;
  plan.input_dtypes = {DType::kBool, dtype, dtype};
  plan.result_dtype = dtype;
  plan.function =
      visit_dtype(dtype, []<typename T>() -> BlockFunction { return &choose_block<T>; });
  run_elementwise(plan, out, {&condition, &a, &b});
  return out;
}

Tensor detail::masked_fill(const Tensor& a, const Tensor& mask, const Scalar& value) {
  if (!can_cast(value.dtype(), a.dtype()) && !is_floating(a.dtype()))
    throw InvalidArgument(fmt::format("masked_fill: a {} cannot go into {}",
                                      dtype_name(value.dtype()), dtype_name(a.dtype())));
  return ops::where(mask, scalar_tensor(value, a.dtype()), a);
}

Tensor detail::index_select(const Tensor& a, std::int64_t dim, const Tensor& index) {
  const Device device = common_device("index_select", {&a, &index});
  check_index_1d("index_select", index);
  const std::int64_t d = wrap_dim(dim, a.dim(), "index_select");
  const Tensor indices = checked_indices("index_select", index, a.dim() == 0 ? 1 : a.size(d));
  DimVector sizes = a.sizes().to_vector();
  if (a.dim() > 0) sizes[static_cast<std::size_t>(d)] = index.numel();
  Tensor out = empty(sizes, a.dtype(), device);
  if (!out.is_meta() && out.numel() > 0) select_rows(out, contiguous(a), indices, d);
  return out;
}

Tensor detail::gather_elements(const Tensor& a, std::int64_t dim, const Tensor& index) {
  const Device device = common_device("gather", {&a, &index});
  const std::int64_t d = wrap_dim(dim, a.dim(), "gather");
  check_gather_shape("gather", a, index, d);
  const Tensor indices = checked_indices("gather", index, a.dim() == 0 ? 1 : a.size(d));
  Tensor out = empty(index.sizes(), a.dtype(), device);
  if (out.is_meta() || out.numel() == 0) return out;
  const std::size_t item = a.item_size();
  const auto* from = static_cast<const char*>(a.const_data_ptr());
  auto* target = static_cast<char*>(out.data_ptr());
  for_gathered(indices, a, d, [&](std::int64_t i, std::int64_t offset) {
    std::memcpy(target + static_cast<std::size_t>(i) * item,
                from + static_cast<std::size_t>(offset) * item, item);
  });
  return out;
}

Tensor detail::scatter_add(const Tensor& a, std::int64_t dim, const Tensor& index,
                           const Tensor& source) {
  common_device("scatter_add", {&a, &index, &source});
  const std::int64_t d = wrap_dim(dim, a.dim(), "scatter_add");
  check_gather_shape("scatter_add", a, index, d);
  check_gather_shape("scatter_add", source, index, -1);
  if (source.dtype() != a.dtype())
    throw InvalidArgument(fmt::format("scatter_add: {} into {}; convert one of them",
                                      dtype_name(source.dtype()), dtype_name(a.dtype())));
  const Tensor indices = checked_indices("scatter_add", index, a.dim() == 0 ? 1 : a.size(d));
  Tensor out = clone(a, MemoryFormat::kContiguous);
  if (out.is_meta() || index.numel() == 0) return out;
  // The part of the source that the index covers, densely.
  Tensor used = source;
  for (std::int64_t i = 0; i < source.dim(); ++i) used = used.narrow(i, 0, index.size(i));
  const Tensor values = contiguous(used);
  visit_dtype(a.dtype(), [&]<typename T>() {
    T* target = out.data_ptr<T>();
    const T* from = values.const_data_ptr<T>();
    for_gathered(indices, out, d, [&](std::int64_t i, std::int64_t offset) {
      target[offset] = sum_of<T>(target[offset], from[i]);
    });
  });
  return out;
}

Tensor detail::index_add(const Tensor& a, std::int64_t dim, const Tensor& index,
                         const Tensor& source) {
  common_device("index_add", {&a, &index, &source});
  check_index_1d("index_add", index);
  const std::int64_t d = wrap_dim(dim, a.dim(), "index_add");
  const Tensor indices = checked_indices("index_add", index, a.dim() == 0 ? 1 : a.size(d));
  DimVector expected = a.sizes().to_vector();
  if (a.dim() > 0) expected[static_cast<std::size_t>(d)] = index.numel();
  if (!(source.sizes() == IntList(expected)) || source.dtype() != a.dtype())
    throw InvalidArgument(fmt::format("index_add: a source of {} {}; it must be {} {}",
                                      dtype_name(source.dtype()), to_string(source.sizes()),
                                      dtype_name(a.dtype()), to_string(IntList(expected))));
  Tensor out = clone(a, MemoryFormat::kContiguous);
  if (out.is_meta() || source.numel() == 0) return out;
  const Tensor values = contiguous(source);
  const Split split = split_at(a.sizes(), d);
  const std::int64_t* at = indices.const_data_ptr<std::int64_t>();
  visit_dtype(a.dtype(), [&]<typename T>() {
    T* target = out.data_ptr<T>();
    const T* from = values.const_data_ptr<T>();
    for (std::int64_t i = 0; i < split.outer * indices.numel(); ++i, from += split.inner) {
      T* row = target + (i / indices.numel() * split.size + at[i % indices.numel()]) * split.inner;
      for (std::int64_t j = 0; j < split.inner; ++j) row[j] = sum_of<T>(row[j], from[j]);
    }
  });
  return out;
}

Tensor detail::embedding(const Tensor& index, const Tensor& weight) {
  if (weight.dim() != 2)
    throw InvalidArgument(fmt::format("embedding: a weight of shape {}; it must be [rows, width]",
                                      to_string(weight.sizes())));
  DimVector sizes = index.sizes().to_vector();
  sizes.push_back(weight.size(1));
  return ops::index_select(weight, 0, index.reshape({-1})).view(sizes);
}

Tensor detail::one_hot(const Tensor& index, std::int64_t classes) {
  const Device device = common_device("one_hot", {&index});
  if (classes < 0) {
    if (index.is_meta() || index.numel() == 0)
      throw InvalidArgument("one_hot: the number of classes is needed where no index can be seen");
    classes = ops::amax(index).item<std::int64_t>() + 1;
  }
  const Tensor indices = checked_indices("one_hot", index, classes);
  DimVector sizes = index.sizes().to_vector();
  sizes.push_back(classes);
  Tensor out = zeros(sizes, DType::kI64, device);
  if (out.is_meta() || out.numel() == 0) return out;
  std::int64_t* target = out.data_ptr<std::int64_t>();
  const std::int64_t* at = indices.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < indices.numel(); ++i) target[i * classes + at[i]] = 1;
  return out;
}

}  // namespace tenon::ops
