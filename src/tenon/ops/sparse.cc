#include "tenon/ops/sparse.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tenon/base/parallel.h"
#include "tenon/ops/binary.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/matmul.h"
#include "tenon/ops/reduce.h"
#include "tenon/ops/shape.h"
#include "tenon/ops/unary.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/indexing.h"
#include "tenon/tensor/sparse.h"

namespace tenon::ops {
namespace {

const std::int64_t* numbers(const Tensor& indices) {
  return indices.defined() ? indices.const_data_ptr<std::int64_t>() : nullptr;
}

// Pattern of elements that lie at (row[i], column[i]): a stable counting sort by rows. order[i]
// (null: i) is what element i is called.
SparsePattern sorted_pattern(std::int64_t rows, std::int64_t columns, std::int64_t count,
                             const std::int64_t* row, const std::int64_t* column,
                             const std::int64_t* order) {
  SparsePattern pattern{rows, columns, zeros({rows + 1}, DType::kI64), empty({count}, DType::kI64),
                        empty({count}, DType::kI64)};
  auto* pointer = pattern.crow.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) ++pointer[row[i] + 1];
  for (std::int64_t r = 0; r < rows; ++r) pointer[r + 1] += pointer[r];
  std::vector<std::int64_t> next(pointer, pointer + rows + 1);
  auto* col = pattern.col.data_ptr<std::int64_t>();
  auto* names = pattern.order.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = next[static_cast<std::size_t>(row[i])]++;
    col[at] = column[i];
    names[at] = order == nullptr ? i : order[i];
  }
  return pattern;
}

// f(number of the pattern's element, number of the value) for rows [begin, end).
template <typename F>
void walk_rows(const SparsePattern& pattern, std::int64_t begin, std::int64_t end, F&& f) {
  const std::int64_t *crow = numbers(pattern.crow), *order = numbers(pattern.order);
  for (std::int64_t r = begin; r < end; ++r)
    for (std::int64_t i = crow[r]; i < crow[r + 1]; ++i) f(r, i, order == nullptr ? i : order[i]);
}

std::int64_t grain_of(const SparsePattern& pattern, std::int64_t n) {
  const std::int64_t work = pattern.col.numel() * n / (pattern.rows + 1);
  return std::max<std::int64_t>(1, (1 << 16) / std::max<std::int64_t>(1, work));
}

// Calls visit with the types that products are computed in.
template <typename Visit>
void visit_product(DType dtype, Visit&& visit) {
  visit_dtype(dtype, [&]<typename T>() {
    if constexpr (!std::is_same_v<T, bool> && !kIsNarrowFloat<T>) visit.template operator()<T>();
  });
}

void check_product(const Tensor& sparse, const Tensor& dense) {
  const bool fits = sparse.dim() == 2 && !is_sparse(dense) &&
                    (dense.dim() == 1 || dense.dim() == 2) && dense.size(0) == sparse.size(1) &&
                    sparse.dtype() == dense.dtype() && sparse.dtype() != DType::kBool &&
                    !is_storage_only(sparse.dtype()) && dense.device() == Device{};
  if (!fits)
    throw InvalidArgument(fmt::format(
        "matmul: a {} matrix of shape {} ({}) by a {} tensor of shape {} ({}) on {}; it takes a "
        "strided vector [k] or matrix [k, n] on the cpu of the same dtype, not bool",
        layout_name(sparse.layout()), to_string(sparse.sizes()), dtype_name(sparse.dtype()),
        layout_name(dense.layout()), to_string(dense.sizes()), dtype_name(dense.dtype()),
        to_string(dense.device())));
}

[[noreturn]] void refuse_sparse(const char* what, const Tensor& a, const Tensor& b) {
  throw InvalidArgument(fmt::format(
      "{}: a {} tensor of shape {} and a {} one of shape {}; docs/tensors.md says what sparse "
      "tensors can, to_dense() makes strided ones",
      what, layout_name(a.layout()), to_string(a.sizes()), layout_name(b.layout()),
      to_string(b.sizes())));
}

Tensor flat_values(const Tensor& sparse) {
  const Tensor& values = sparse_values(sparse);
  return values.dim() == 1 ? values : values.reshape({-1});
}

// --- Kernels of DispatchKey::kSparse. They call recorded operators on the values.
Tensor matmul_sparse(const Tensor& a, const Tensor& b) {
  if (!is_sparse(a)) refuse_sparse("matmul", a, b);
  check_product(a, b);
  const SparsePattern pattern = pattern_of(a);
  if (b.dim() == 2) return sparse_product(pattern, flat_values(a), b);
  return sparse_product(pattern, flat_values(a), b.unsqueeze(1)).squeeze(1);
}

Tensor like(const Tensor& model, const Tensor& coo) {
  switch (model.layout()) {
    case Layout::kSparseCsr:
      return to_sparse_csr(coo);
    case Layout::kSparseCsc:
      return to_sparse_csc(coo);
    case Layout::kSparseBsr:
    case Layout::kSparseBsc: {
      const Tensor& values = sparse_values(model);
      return model.layout() == Layout::kSparseBsr
                 ? to_sparse_bsr(coo, values.size(1), values.size(2))
                 : to_sparse_bsc(coo, values.size(1), values.size(2));
    }
    default:
      return coo;
  }
}

template <Tensor (*dense_add)(const Tensor&, const Tensor&)>
Tensor add_parts(const char* what, const Tensor& a, const Tensor& b, const Tensor& signed_b) {
  if (!(a.sizes() == b.sizes())) refuse_sparse(what, a, b);
  if (!is_sparse(a) || !is_sparse(b)) return dense_add(to_dense(a), to_dense(b));
  const Tensor left = to_sparse_coo(a), right = to_sparse_coo(signed_b);
  if (sparse_indices(left).size(0) != sparse_indices(right).size(0)) refuse_sparse(what, a, b);
  const Tensor indices = cat({sparse_indices(left), sparse_indices(right)}, 1);
  const Tensor values = cat({sparse_values(left), sparse_values(right)});
  return like(a, coalesce(sparse_coo_tensor(indices, values, a.sizes())));
}
Tensor add_sparse(const Tensor& a, const Tensor& b) { return add_parts<ops::add>("add", a, b, b); }
Tensor sub_sparse(const Tensor& a, const Tensor& b) {
  return add_parts<ops::sub>("sub", a, b, is_sparse(b) ? ops::neg(b) : b);
}

Tensor mul_sparse(const Tensor& a, const Tensor& b) {
  if (is_sparse(a) == is_sparse(b)) refuse_sparse("mul", a, b);
  const Tensor &sparse = is_sparse(a) ? a : b, &number = is_sparse(a) ? b : a;
  if (number.dim() != 0) refuse_sparse("mul", a, b);
  return with_sparse_values(sparse, ops::mul(sparse_values(sparse), number));
}
Tensor div_sparse(const Tensor& a, const Tensor& b) {
  if (!is_sparse(a) || is_sparse(b) || b.dim() != 0) refuse_sparse("div", a, b);
  return with_sparse_values(a, ops::div(sparse_values(a), b));
}
Tensor neg_sparse(const Tensor& a) { return with_sparse_values(a, ops::neg(sparse_values(a))); }

Tensor sum_sparse(const Tensor& a, IntList dims, bool keepdim) {
  const std::uint64_t reduced = detail::reduced_dims("sum", a, dims);
  const std::uint64_t all = (std::uint64_t{1} << a.dim()) - 1;
  if (reduced == all || a.dim() != 2 || reduced == 0) {
    if (reduced != all) return ops::sum(to_dense(a), dims, keepdim);
    const Tensor total = ops::sum(sparse_values(a));
    return keepdim ? total.reshape(DimVector(static_cast<std::size_t>(a.dim()), 1)) : total;
  }
  const bool of_rows = reduced == 2;  // dimension 1 goes
  Tensor values = flat_values(a);
  if (!is_floating(values.dtype()) && !is_complex(values.dtype())) values = to(values, DType::kI64);
  const SparsePattern pattern = of_rows ? pattern_of(a) : transposed(pattern_of(a));
  const Tensor total =
      sparse_product(pattern, values, ones({pattern.columns, 1}, values.dtype()));
  return !keepdim ? total.squeeze(1) : of_rows ? total : total.t();
}

}  // namespace

SparsePattern pattern_of(const Tensor& sparse) {
  if (sparse.layout() == Layout::kSparseCsr)
    return {sparse.size(0), sparse.size(1), sparse_crow_indices(sparse), sparse_col_indices(sparse),
            Tensor()};
  const Tensor indices = contiguous(sparse_indices(to_sparse_coo(sparse.detach())));
  if (sparse.dim() != 2 || indices.size(0) != 2)
    throw InvalidArgument(fmt::format("matmul: shape {} with {} sparse dimensions; it takes a "
                                      "matrix whose dimensions are sparse",
                                      to_string(sparse.sizes()), indices.size(0)));
  const std::int64_t* row = numbers(indices);
  return sorted_pattern(sparse.size(0), sparse.size(1), indices.size(1), row,
                        row + indices.size(1), nullptr);
}

SparsePattern transposed(const SparsePattern& pattern) {
  std::vector<std::int64_t> row(static_cast<std::size_t>(pattern.col.numel()));
  walk_rows(pattern, 0, pattern.rows, [&](std::int64_t r, std::int64_t i, std::int64_t) {
    row[static_cast<std::size_t>(i)] = r;
  });
  return sorted_pattern(pattern.columns, pattern.rows, pattern.col.numel(), numbers(pattern.col),
                        row.data(), numbers(pattern.order));
}

Tensor detail::sparse_product(const SparsePattern& pattern, const Tensor& values,
                              const Tensor& dense) {
  const DType compute = compute_dtype(values.dtype());
  const Tensor factors = contiguous(to(values.detach(), compute));
  const Tensor right = contiguous(to(dense.detach(), compute));
  const std::int64_t n = dense.size(1);
  const Tensor out = empty({pattern.rows, n}, compute);
  const std::int64_t* column = numbers(pattern.col);
  visit_product(compute, [&]<typename T>() {
    T* to_rows = out.data_ptr<T>();
    const T* factor = factors.const_data_ptr<T>();
    const T* from_rows = right.const_data_ptr<T>();
    parallel_for(0, pattern.rows, grain_of(pattern, n), [&](std::int64_t begin, std::int64_t end) {
      std::fill(to_rows + begin * n, to_rows + end * n, T(0));
      walk_rows(pattern, begin, end, [&](std::int64_t r, std::int64_t i, std::int64_t value) {
        T* row = to_rows + r * n;
        const T* from = from_rows + column[i] * n;
        const T by = factor[value];
        for (std::int64_t j = 0; j < n; ++j) row[j] = static_cast<T>(row[j] + by * from[j]);
      });
    });
  });
  return to(out, values.dtype());
}

Tensor detail::sampled_product(const SparsePattern& pattern, const Tensor& x, const Tensor& y) {
  const DType compute = compute_dtype(x.dtype());
  const Tensor left = contiguous(to(x.detach(), compute));
  const Tensor right = contiguous(to(y.detach(), compute));
  const std::int64_t n = x.size(1);
  const Tensor out = empty({pattern.col.numel()}, compute);
  const std::int64_t* column = numbers(pattern.col);
  visit_product(compute, [&]<typename T>() {
    T* results = out.data_ptr<T>();
    const T* x_rows = left.const_data_ptr<T>();
    const T* y_rows = right.const_data_ptr<T>();
    parallel_for(0, pattern.rows, grain_of(pattern, n), [&](std::int64_t begin, std::int64_t end) {
      walk_rows(pattern, begin, end, [&](std::int64_t r, std::int64_t i, std::int64_t value) {
        const T* a = x_rows + r * n;
        const T* b = y_rows + column[i] * n;
        T sum(0);
        for (std::int64_t j = 0; j < n; ++j) sum = static_cast<T>(sum + a[j] * b[j]);
        results[value] = sum;
      });
    });
  });
  return to(out, x.dtype());
}

bool detail::install_sparse() {
  op::matmul.set_kernel(DispatchKey::kSparse, &matmul_sparse);
  op::add.set_kernel(DispatchKey::kSparse, &add_sparse);
  op::sub.set_kernel(DispatchKey::kSparse, &sub_sparse);
  op::mul.set_kernel(DispatchKey::kSparse, &mul_sparse);
  op::div.set_kernel(DispatchKey::kSparse, &div_sparse);
  op::neg.set_kernel(DispatchKey::kSparse, &neg_sparse);
  op::sum.set_kernel(DispatchKey::kSparse, &sum_sparse);
  return true;
}

}  // namespace tenon::ops
