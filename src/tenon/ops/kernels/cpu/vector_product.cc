// For each instruction set: rows in vectors; columns in plain loops, which the compiler vectorises.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/vector_product.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

#include <algorithm>
#include <type_traits>
#include <vector>

#include "tenon/base/parallel.h"
#include "tenon/ops/kernels/cpu/vector_product.h"

#ifndef TENON_OPS_VECTOR_PRODUCT_TASK
#define TENON_OPS_VECTOR_PRODUCT_TASK
namespace tenon::ops::cpu {

// out[i * out_step] = (a line of the matrix) times the vector + beta out, for lines [begin, end):
// rows of `length` elements, or columns of as many.
struct VectorTask {
  const void* matrix;
  std::int64_t row_stride, length;
  const void* vector;
  double beta;
  void* out;
  std::int64_t out_step;
};
struct VectorKernels {
  void (*rows)(const VectorTask& task, std::int64_t begin, std::int64_t end);
  void (*columns)(const VectorTask& task, std::int64_t begin, std::int64_t end);
};

}  // namespace tenon::ops::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

namespace hn = hwy::HWY_NAMESPACE;

template <typename From>
using Sum = std::conditional_t<std::is_same_v<From, double>, double, float>;

template <typename From>
void put(const cpu::VectorTask& task, std::int64_t at, Sum<From> sum) {
  Sum<From>& to = static_cast<Sum<From>*>(task.out)[at * task.out_step];
  to = task.beta == 0 ? sum : sum + static_cast<Sum<From>>(task.beta) * to;
}

// A vector of elements, widened.
template <class D, typename From>
HWY_INLINE hn::Vec<D> load(D d, const From* from) {
  if constexpr (std::is_same_v<From, BFloat16>)
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::bfloat16_t, D>(),
                                      reinterpret_cast<const hwy::bfloat16_t*>(from)));
  else
    return hn::LoadU(d, from);
}

// Two rows share what is loaded of the vector. A row's sum does not depend on its neighbours.
template <int kRows, typename From>
void some_rows(const cpu::VectorTask& task, std::int64_t first) {
  using T = Sum<From>;
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto* row = static_cast<const From*>(task.matrix) + first * task.row_stride;
  const auto* below = row + (kRows > 1 ? task.row_stride : 0);
  const auto* x = static_cast<const From*>(task.vector);
  auto sum0 = hn::Zero(d), sum1 = sum0, below0 = sum0, below1 = sum0;
  T rest = 0, rest_below = 0;
  std::int64_t i = 0;
  for (; i + 2 * lanes <= task.length; i += 2 * lanes) {
    const auto x0 = load(d, x + i), x1 = load(d, x + i + lanes);
    sum0 = hn::MulAdd(load(d, row + i), x0, sum0);
    sum1 = hn::MulAdd(load(d, row + i + lanes), x1, sum1);
    if (kRows == 1) continue;
    below0 = hn::MulAdd(load(d, below + i), x0, below0);
    below1 = hn::MulAdd(load(d, below + i + lanes), x1, below1);
  }
  for (; i < task.length; ++i) {
    rest += static_cast<T>(row[i]) * static_cast<T>(x[i]);
    if (kRows > 1) rest_below += static_cast<T>(below[i]) * static_cast<T>(x[i]);
  }
  const auto total = [&](auto a, auto b) { return hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b))); };
  put<From>(task, first, total(sum0, sum1) + rest);
  if (kRows > 1) put<From>(task, first + 1, total(below0, below1) + rest_below);
}
template <typename From>
void rows_of(const cpu::VectorTask& task, std::int64_t begin, std::int64_t end) {
  for (; begin + 2 <= end; begin += 2) some_rows<2, From>(task, begin);
  for (; begin < end; ++begin) some_rows<1, From>(task, begin);
}

// Strips of columns, whose sums stay in the first-level cache while the rows pass by.
constexpr std::int64_t kStrip = 256;
template <typename From>
void columns_of(const cpu::VectorTask& task, std::int64_t begin, std::int64_t end) {
  using T = Sum<From>;
  const auto* x = static_cast<const From*>(task.vector);
  for (std::int64_t first = begin; first < end; first += kStrip) {
    const std::int64_t count = std::min(kStrip, end - first);
    alignas(64) T sums[kStrip] = {};
    const auto* row = static_cast<const From*>(task.matrix) + first;
    std::int64_t l = 0;
    for (; l + 4 <= task.length; l += 4) {
      const T x0 = static_cast<T>(x[l]), x1 = static_cast<T>(x[l + 1]);
      const T x2 = static_cast<T>(x[l + 2]), x3 = static_cast<T>(x[l + 3]);
      const From *row0 = row + l * task.row_stride, *row1 = row0 + task.row_stride;
      const From *row2 = row1 + task.row_stride, *row3 = row2 + task.row_stride;
#pragma GCC ivdep
      for (std::int64_t c = 0; c < count; ++c)
        sums[c] = sums[c] + x0 * static_cast<T>(row0[c]) + x1 * static_cast<T>(row1[c]) +
                  x2 * static_cast<T>(row2[c]) + x3 * static_cast<T>(row3[c]);
    }
    for (; l < task.length; ++l)
#pragma GCC ivdep
      for (std::int64_t c = 0; c < count; ++c)
        sums[c] += static_cast<T>(x[l]) * static_cast<T>(row[l * task.row_stride + c]);
    for (std::int64_t c = 0; c < count; ++c) put<From>(task, first + c, sums[c]);
  }
}

}  // namespace

cpu::VectorKernels vector_kernels(DType dtype) {
  if (dtype == DType::kF64) return {&rows_of<double>, &columns_of<double>};
  if (dtype == DType::kBF16) return {&rows_of<BFloat16>, &columns_of<BFloat16>};
  return {&rows_of<float>, &columns_of<float>};
}

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(vector_kernels);

namespace {

template <typename T>
std::vector<T> gathered(const void* from, std::int64_t count, std::int64_t step) {
  std::vector<T> dense(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    dense[static_cast<std::size_t>(i)] = static_cast<const T*>(from)[i * step];
  return dense;
}

template <typename T>
void product_of(DType dtype, const cpu::Matrix& matrix, bool by_rows, std::int64_t lines,
                std::int64_t length, const void* vector, std::int64_t step, double beta, void* out,
                std::int64_t out_step) {
  const std::vector<T> copy =
      step == 1 || length == 1 ? std::vector<T>() : gathered<T>(vector, length, step);
  const cpu::VectorTask task{matrix.data, matrix.row_stride, length,
                             copy.empty() ? vector : copy.data(), beta, out, out_step};
  const cpu::VectorKernels kernels = HWY_DYNAMIC_DISPATCH(vector_kernels)(dtype);
  // Whole strips of columns, and groups of rows.
  const std::int64_t unit = by_rows ? 2 : 256;
  constexpr std::int64_t kWork = 65536;
  const std::int64_t units =
      std::max<std::int64_t>(1, kWork / (unit * std::max<std::int64_t>(1, length)));
  parallel_for(0, lines, units * unit, [&](std::int64_t begin, std::int64_t end) {
    (by_rows ? kernels.rows : kernels.columns)(task, begin, end);
  });
}

}  // namespace

void cpu::vector_product(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k,
                         const Matrix& a, const Matrix& b, double beta, void* out,
                         std::int64_t out_stride) {
  const bool left = m == 1;  // the vector is
  const Matrix& matrix = left ? b : a;
  const Matrix& vector = left ? a : b;
  const bool is_one_line = m == n && matrix.row_stride == 1;  // a column is as good as a row
  const bool by_rows = left == matrix.transposed || is_one_line;
  const std::int64_t step = left == vector.transposed ? vector.row_stride : 1;
  const auto run = [&]<typename T>(T) {
    product_of<T>(dtype, matrix, by_rows, left ? n : m, k, vector.data, step, beta, out,
                  left ? 1 : out_stride);
  };
  if (dtype == DType::kF64) return run(double());
  dtype == DType::kBF16 ? run(BFloat16()) : run(float());
}

}  // namespace tenon::ops
#endif
