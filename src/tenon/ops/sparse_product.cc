#include "tenon/ops/sparse_product.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/elementwise.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/sparse.h"

namespace tenon::ops {
namespace {

void check(const Tensor& sparse, const Tensor& dense) {
  const bool fits = sparse.dim() == 2 && !is_sparse(dense) &&
                    (dense.dim() == 1 || dense.dim() == 2) && dense.size(0) == sparse.size(1) &&
                    sparse.dtype() == dense.dtype() && sparse.dtype() != DType::kBool &&
                    dense.device() == Device{};
  if (!fits)
    throw InvalidArgument(fmt::format(
        "matmul: a {} matrix of shape {} ({}) by a {} tensor of shape {} ({}) on {}; it takes a "
        "strided vector [k] or matrix [k, n] on the cpu of the same dtype, not bool",
        layout_name(sparse.layout()), to_string(sparse.sizes()), dtype_name(sparse.dtype()),
        layout_name(dense.layout()), to_string(dense.sizes()), dtype_name(dense.dtype()),
        to_string(dense.device())));
}

// Rows [begin, end) of out = sparse dense; all dense tensors contiguous.
template <typename T>
void multiply_rows(T* out, const Tensor& sparse, const T* dense, std::int64_t n,
                   std::int64_t begin, std::int64_t end) {
  const auto* crow = sparse_crow_indices(sparse).const_data_ptr<std::int64_t>();
  const auto* column = sparse_col_indices(sparse).const_data_ptr<std::int64_t>();
  const T* value = sparse_values(sparse).const_data_ptr<T>();
  for (std::int64_t r = begin; r < end; ++r) {
    T* row = out + r * n;
    std::fill_n(row, n, T(0));
    for (std::int64_t i = crow[r]; i < crow[r + 1]; ++i) {
      const T factor = value[i];
      const T* from = dense + column[i] * n;
      for (std::int64_t j = 0; j < n; ++j) row[j] = static_cast<T>(row[j] + factor * from[j]);
    }
  }
}

}  // namespace

Tensor sparse_product(const Tensor& sparse, const Tensor& dense) {
  check(sparse, dense);
  const DType compute = compute_dtype(sparse.dtype());
  const Tensor csr = to_sparse_csr(to(sparse, compute));
  const Tensor values = contiguous(sparse_values(csr));
  const Tensor ready = with_sparse_values(csr, values);
  const Tensor right = contiguous(to(dense, compute));
  const std::int64_t rows = sparse.size(0);
  const std::int64_t n = dense.dim() == 1 ? 1 : dense.size(1);
  const Tensor out = dense.dim() == 1 ? empty({rows}, compute) : empty({rows, n}, compute);
  const std::int64_t row_work = std::max<std::int64_t>(1, sparse_nnz(ready) * n / (rows + 1));
  const std::int64_t grain = std::max<std::int64_t>(1, (1 << 16) / row_work);
  visit_dtype(compute, [&]<typename T>() {
    if constexpr (!std::is_same_v<T, bool> && !std::is_same_v<T, Half> &&
                  !std::is_same_v<T, BFloat16>) {
      T* to_rows = out.data_ptr<T>();
      const T* from = right.const_data_ptr<T>();
      parallel_for(0, rows, grain, [&](std::int64_t begin, std::int64_t end) {
        multiply_rows<T>(to_rows, ready, from, n, begin, end);
      });
    }
  });
  return to(out, sparse.dtype());
}

}  // namespace tenon::ops
