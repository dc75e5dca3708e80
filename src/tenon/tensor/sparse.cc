#include "tenon/tensor/sparse.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tenon/base/error.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/defined.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/indexing.h"
#include "tenon/tensor/sparse_parts.h"

namespace tenon {

void detail::refuse_views(const Tensor& tensor, const char* what) {
  throw InvalidArgument(fmt::format("{}: a {} tensor of shape {} has no views; to_dense() has",
                                    what, layout_name(tensor.layout()),
                                    to_string(tensor.sizes())));
}

const detail::SparseParts& detail::parts_of(const Tensor& tensor, const char* what) {
  check_defined(what, tensor);
  if (!is_sparse(tensor))
    throw InvalidArgument(fmt::format("{}: a strided tensor of shape {} has no sparse parts; "
                                      "to_sparse_coo() or to_sparse_csr() makes some",
                                      what, to_string(tensor.sizes())));
  return static_cast<const SparseParts&>(*tensor.impl()->extra_meta()->backend);
}

const detail::SparseParts& detail::parts_of(const Tensor& tensor, Layout layout, const char* what) {
  const SparseParts& parts = parts_of(tensor, what);
  if (tensor.layout() != layout)
    throw InvalidArgument(fmt::format("{}: of {}, this tensor of shape {} is {}", what,
                                      layout_name(layout), to_string(tensor.sizes()),
                                      layout_name(tensor.layout())));
  return parts;
}

Tensor detail::make_sparse(Layout layout, IntList sizes, Tensor indices, Tensor plain,
                           Tensor values, bool coalesced) {
  auto impl = make_intrusive<TensorImpl>(layout, values.dtype(), values.device(), sizes);
  impl->ensure_extra_meta().backend = make_intrusive<SparseParts>(
      std::move(indices), std::move(plain), std::move(values), coalesced);
  return Tensor(std::move(impl));
}

// Indices as dense int64 on the host.
Tensor detail::as_indices(const Tensor& given, const char* what) {
  check_defined(what, given);
  if (!is_integral(given.dtype()) || given.device() != Device{} || is_sparse(given))
    throw InvalidArgument(fmt::format("{}: indices are {} on {}; integers on the cpu are needed",
                                      what, dtype_name(given.dtype()), to_string(given.device())));
  return contiguous(to(given.detach(), DType::kI64));
}

void detail::check_values(const Tensor& values, std::int64_t nnz, const char* what) {
  check_defined(what, values);
  if (is_sparse(values) || values.device() != Device{} || values.dim() < 1 ||
      values.size(0) != nnz)
    throw InvalidArgument(fmt::format(
        "{}: values of shape {} on {} for {} indices; their first size is the number of indices",
        what, to_string(values.sizes()), to_string(values.device()), nnz));
}

Tensor detail::from_vector(const std::vector<std::int64_t>& values) {
  return tensor<std::int64_t>(std::span<const std::int64_t>(values),
                              {static_cast<std::int64_t>(values.size())});
}

namespace {

using detail::as_indices;
using detail::check_values;
using detail::from_vector;
using detail::make_sparse;
using detail::parts_of;
using detail::SparseParts;

// The row-major number of each element of COO.
std::vector<std::int64_t> linear_indices(const Tensor& coo_indices, IntList sizes) {
  const std::int64_t nnz = coo_indices.size(1);
  const std::int64_t* index = coo_indices.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> linear(static_cast<std::size_t>(nnz), 0);
  for (std::int64_t d = 0; d < coo_indices.size(0); ++d, index += nnz) {
    const std::int64_t size = sizes[static_cast<std::size_t>(d)];
    for (std::size_t i = 0; i < linear.size(); ++i) linear[i] = linear[i] * size + index[i];
  }
  return linear;
}

// The other way: [sparse_dim, count].
Tensor unravel(const std::vector<std::int64_t>& linear, IntList sizes, std::int64_t sparse_dim) {
  const auto count = static_cast<std::int64_t>(linear.size());
  Tensor indices = empty({sparse_dim, count}, DType::kI64);
  auto* out = indices.data_ptr<std::int64_t>();
  std::vector<std::int64_t> rest = linear;
  for (std::int64_t d = sparse_dim - 1; d >= 0; --d) {
    const std::int64_t size = std::max<std::int64_t>(1, sizes[static_cast<std::size_t>(d)]);
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t& number = rest[static_cast<std::size_t>(i)];
      out[d * count + i] = number % size;
      number /= size;
    }
  }
  return indices;
}

// The positions of what is not zero in [count, inner], row by row.
std::vector<std::int64_t> nonzero_rows(const Tensor& rows) {
  std::vector<std::int64_t> found;
  visit_dtype(rows.dtype(), [&]<typename T>() {
    const T* element = rows.const_data_ptr<T>();
    const std::int64_t inner = rows.size(1);
    for (std::int64_t r = 0; r < rows.size(0); ++r, element += inner)
      if (std::any_of(element, element + inner, [](T x) { return convert_element<bool>(x); }))
        found.push_back(r);
  });
  return found;
}

}  // namespace

Tensor sparse_coo_tensor(const Tensor& indices, const Tensor& values, IntList sizes) {
  const Tensor ready = as_indices(indices, "sparse_coo_tensor");
  if (ready.dim() != 2 || ready.size(0) > static_cast<std::int64_t>(sizes.size()))
    throw InvalidArgument(fmt::format(
        "sparse_coo_tensor: indices of shape {} for sizes {}; they are [sparse dimensions, nnz]",
        to_string(ready.sizes()), to_string(sizes)));
  const std::int64_t sparse_dim = ready.size(0), nnz = ready.size(1);
  check_values(values, nnz, "sparse_coo_tensor");
  if (!(values.sizes().without_first(1) ==
        sizes.without_first(static_cast<std::size_t>(sparse_dim))))
    throw InvalidArgument(fmt::format(
        "sparse_coo_tensor: values of shape {} for sizes {} with {} sparse dimensions",
        to_string(values.sizes()), to_string(sizes), sparse_dim));
  static_cast<void>(checked_numel(sizes));
  const auto* index = ready.const_data_ptr<std::int64_t>();
  for (std::int64_t d = 0; d < sparse_dim; ++d)
    for (std::int64_t i = 0; i < nnz; ++i) {
      const std::int64_t found = index[d * nnz + i];
      if (found < 0 || found >= sizes[static_cast<std::size_t>(d)])
        throw InvalidArgument(
            fmt::format("sparse_coo_tensor: index {} of element {} in dimension {} of shape {}",
                        found, i, d, to_string(sizes)));
    }
  return make_sparse(Layout::kSparseCoo, sizes, ready, Tensor(), values, nnz < 2);
}

Tensor to_sparse_coo(const Tensor& source, std::int64_t sparse_dim) {
  detail::check_defined("to_sparse_coo", source);
  if (source.layout() == Layout::kSparseCoo) return source;
  if (is_sparse(source)) return detail::expand_compressed(source);
  const std::int64_t sparse = sparse_dim < 0 ? source.dim() : sparse_dim;
  if (sparse > source.dim() || source.device() != Device{})
    throw InvalidArgument(fmt::format("to_sparse_coo: {} sparse dimensions of shape {} on {}",
                                      sparse_dim, to_string(source.sizes()),
                                      to_string(source.device())));
  const auto split = static_cast<std::size_t>(sparse);
  const DimVector inner(source.sizes().data() + split, source.sizes().size() - split);
  const std::int64_t outer = numel_of(IntList(source.sizes().data(), split));
  const Tensor rows = contiguous(source).view({outer, numel_of(inner)});
  const std::vector<std::int64_t> found = nonzero_rows(rows);
  DimVector value_sizes{static_cast<std::int64_t>(found.size())};
  for (const std::int64_t size : inner) value_sizes.push_back(size);
  const Tensor values = rows[{from_vector(found)}].view(value_sizes);
  return make_sparse(Layout::kSparseCoo, source.sizes(), unravel(found, source.sizes(), sparse),
                     Tensor(), values, true);
}

Tensor to_dense(const Tensor& source) {
  detail::check_defined("to_dense", source);
  if (!is_sparse(source)) return source;
  const Tensor coo = to_sparse_coo(source);
  const SparseParts& parts = parts_of(coo, "to_dense");
  const auto split = static_cast<std::size_t>(parts.indices.size(0));
  DimVector sizes{numel_of(IntList(source.sizes().data(), split))};
  for (const std::int64_t size : parts.values.sizes().without_first(1)) sizes.push_back(size);
  const Tensor dense = zeros(sizes, source.dtype());
  if (parts.indices.size(1) > 0)
    dense.index_put_({from_vector(linear_indices(parts.indices, source.sizes()))}, parts.values,
                     !parts.coalesced);
  return dense.view(source.sizes());
}

std::int64_t sparse_nnz(const Tensor& sparse) {
  return parts_of(sparse, "sparse_nnz").values.size(0);
}
const Tensor& sparse_values(const Tensor& sparse) {
  return parts_of(sparse, "sparse_values").values;
}
const Tensor& sparse_indices(const Tensor& coo) {
  return parts_of(coo, Layout::kSparseCoo, "sparse_indices").indices;
}
Tensor with_sparse_values(const Tensor& sparse, const Tensor& values) {
  detail::check_defined("with_sparse_values", sparse, values);
  const SparseParts& parts = parts_of(sparse, "with_sparse_values");
  if (is_sparse(values) || !(values.sizes() == parts.values.sizes()))
    throw InvalidArgument(fmt::format("with_sparse_values: values of shape {} in place of {}",
                                      to_string(values.sizes()), to_string(parts.values.sizes())));
  check_values(values, parts.values.size(0), "with_sparse_values");
  return make_sparse(sparse.layout(), sparse.sizes(), parts.indices, parts.plain, values,
                     parts.coalesced);
}

bool is_coalesced(const Tensor& coo) {
  return parts_of(coo, Layout::kSparseCoo, "is_coalesced").coalesced;
}

Tensor coalesce(const Tensor& coo) {
  const SparseParts& parts = parts_of(coo, Layout::kSparseCoo, "coalesce");
  if (parts.coalesced) return coo;
  const std::vector<std::int64_t> linear = linear_indices(parts.indices, coo.sizes());
  std::vector<std::int64_t> order(linear.size());
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](std::int64_t i) { return linear[static_cast<std::size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return key(a) < key(b); });
  std::vector<std::int64_t> unique;
  std::vector<std::int64_t> group(linear.size());  // of each element, in the old order
  for (const std::int64_t i : order) {
    if (unique.empty() || unique.back() != key(i)) unique.push_back(key(i));
    group[static_cast<std::size_t>(i)] = static_cast<std::int64_t>(unique.size()) - 1;
  }
  DimVector sizes = parts.values.sizes().to_vector();
  sizes[0] = static_cast<std::int64_t>(unique.size());
  const Tensor values = zeros(sizes, coo.dtype());
  if (!group.empty()) values.index_put_({from_vector(group)}, parts.values, true);
  return make_sparse(Layout::kSparseCoo, coo.sizes(),
                     unravel(unique, coo.sizes(), parts.indices.size(0)), Tensor(), values, true);
}

Tensor transpose_sparse(const Tensor& sparse, std::int64_t dim0, std::int64_t dim1) {
  detail::check_defined("transpose", sparse);
  if (detail::is_compressed(sparse.layout())) {
    const auto [height, width] = detail::block_size_of(sparse);
    return detail::compress(coalesce(transpose_sparse(to_sparse_coo(sparse), dim0, dim1)),
                            sparse.layout(), {width, height});
  }
  const SparseParts& parts = parts_of(sparse, Layout::kSparseCoo, "transpose");
  const std::int64_t a = wrap_dim(dim0, sparse.dim(), "transpose");
  const std::int64_t b = wrap_dim(dim1, sparse.dim(), "transpose");
  const std::int64_t sparse_dim = parts.indices.size(0);
  if (a == b) return sparse;
  if (a >= sparse_dim || b >= sparse_dim)
    throw InvalidArgument(
        fmt::format("transpose: dimensions {} and {} of shape {}, of which only the first {} are "
                    "sparse; to_dense() it first",
                    dim0, dim1, to_string(sparse.sizes()), sparse_dim));
  DimVector sizes = sparse.sizes().to_vector();
  std::swap(sizes[static_cast<std::size_t>(a)], sizes[static_cast<std::size_t>(b)]);
  std::vector<std::int64_t> order(static_cast<std::size_t>(sparse_dim));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[static_cast<std::size_t>(a)], order[static_cast<std::size_t>(b)]);
  return make_sparse(Layout::kSparseCoo, sizes, parts.indices[{from_vector(order)}], Tensor(),
                     parts.values, parts.values.size(0) < 2);
}

}  // namespace tenon
