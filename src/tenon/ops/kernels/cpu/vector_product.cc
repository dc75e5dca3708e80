// Products of a matrix and a few vectors, for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/vector_product.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tenon/ops/kernels/cpu/wide_load-inl.h"
// clang-format on

#include <algorithm>
#include <type_traits>
#include <vector>

#include "tenon/base/parallel.h"
#include "tenon/ops/kernels/cpu/vector_product.h"
#include "tenon/tensor/half_rows.h"

#ifndef TENON_OPS_VECTOR_PRODUCT_TASK
#define TENON_OPS_VECTOR_PRODUCT_TASK
namespace tenon::ops::cpu {

// out[i * line_step + v * vector_step] = (line i of the matrix) times (vector v) + beta out, for
// lines [begin, end): rows of `length` elements, or columns of as many. Vectors are dense, one
// behind the other, of the dtype of sums.
struct VectorTask {
  const void* matrix = nullptr;
  std::int64_t row_stride = 0, length = 0;
  const void* vectors = nullptr;
  std::int64_t count = 0;  // of vectors
  double beta = 0;
  void* out = nullptr;
  std::int64_t line_step = 0, vector_step = 0;
  bool is_narrow = false;  // out has the matrix's dtype, not that of sums
};
// What sums of such elements are of.
template <typename From>
using Sum = std::conditional_t<std::is_same_v<From, double>, double, float>;

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

using cpu::Sum;

template <typename From>
void put(const cpu::VectorTask& task, std::int64_t line, std::int64_t vector, Sum<From> sum) {
  const std::int64_t at = line * task.line_step + vector * task.vector_step;
  if (task.is_narrow) {
    static_cast<From*>(task.out)[at] = static_cast<From>(sum);
    return;
  }
  Sum<From>& to = static_cast<Sum<From>*>(task.out)[at];
  to = task.beta == 0 ? sum : sum + static_cast<Sum<From>>(task.beta) * to;
}

// Brings what is read soon nearer: processors foresee no further than to the end of a page.
template <typename From>
HWY_INLINE void fetch(const From* from, std::int64_t count) {
  constexpr std::int64_t kLine = 64 / sizeof(From);
  for (std::int64_t i = 0; i < count; i += kLine) __builtin_prefetch(from + i, 0, 2);
}

#if HWY_TARGET != HWY_SCALAR
// Of 16 bytes each.
template <class D, class V>
HWY_INLINE auto sum_of_blocks(D, V v) {
  if constexpr (hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) == 16) {
    return v;
  } else {
    const hn::Half<D> half;
    return sum_of_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}
#endif

// The sums of four vectors' lanes, each in the same order.
template <class D, class V>
HWY_INLINE void put_sums(D d, V a, V b, V c, V e, hn::TFromD<D>* sums) {
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  sums[0] = hn::GetLane(a), sums[1] = hn::GetLane(b);
  sums[2] = hn::GetLane(c), sums[3] = hn::GetLane(e);
#else
  using T = hn::TFromD<D>;
  const auto pair = [&](V x, V y) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(d, x, y), hn::InterleaveUpper(d, x, y));
  };
  const hn::CappedTag<T, 16 / sizeof(T)> block;
  if constexpr (sizeof(T) == 4) {
    hn::StoreU(sum_of_blocks(d, pair(pair(a, c), pair(b, e))), block, sums);
  } else {
    const auto ab = sum_of_blocks(d, pair(a, b)), ce = sum_of_blocks(d, pair(c, e));
    if constexpr (hn::MaxLanes(D()) >= 4) {  // read as one vector, which two stores would delay
      const hn::FixedTag<T, 4> all;
      hn::StoreU(hn::Combine(all, ce, ab), all, sums);
    } else {
      hn::StoreU(ab, block, sums);
      hn::StoreU(ce, block, sums + 2);
    }
  }
#endif
}

// Rows and vectors that are multiplied together, as the registers hold their sums.
constexpr int kRows = 4, kMostVectors = HWY_TARGET == HWY_AVX3 ? 4 : 2;

// Rows share what is loaded of a vector, and vectors what is loaded of a row. A sum does not depend
// on its neighbours. With one vector it has two parts: an addition need not wait for the last.
template <int kRows, int kVectors, typename From, typename X>
void some_rows(const cpu::VectorTask& task, std::int64_t first, std::int64_t vector) {
  const hn::ScalableTag<Sum<From>> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto* const row = static_cast<const From*>(task.matrix) + first * task.row_stride;
  const auto* const x = static_cast<const X*>(task.vectors) + vector * task.length;
  const auto zero = hn::Zero(d);
#define TENON_ROWS(f, v) f(0, v) f(1, v) f(2, v) f(3, v)
#define TENON_SUMS(f) TENON_ROWS(f, 0) TENON_ROWS(f, 1) TENON_ROWS(f, 2) TENON_ROWS(f, 3)
#define TENON_SUM(i, j) auto s##i##j = zero, t##i##j = zero;
  TENON_SUMS(TENON_SUM)
#undef TENON_SUM
  // of(elements): a vector; `second`: in the sums' second part
  const auto add = [&](auto second, auto of) HWY_ATTR __attribute__((always_inline)) {
    const auto x0 = of(x), x1 = kVectors > 1 ? of(x + task.length) : x0;
    const auto x2 = kVectors > 2 ? of(x + 2 * task.length) : x0;
    const auto x3 = kVectors > 3 ? of(x + 3 * task.length) : x0;
    const auto r0 = of(row), r1 = kRows > 1 ? of(row + task.row_stride) : r0;
    const auto r2 = kRows > 2 ? of(row + 2 * task.row_stride) : r0;
    const auto r3 = kRows > 3 ? of(row + 3 * task.row_stride) : r0;
#define TENON_SUM(i, j)                         \
  if constexpr (i < kRows && j < kVectors) {    \
    if constexpr (decltype(second)::value)      \
      t##i##j = hn::MulAdd(r##i, x##j, t##i##j); \
    else                                        \
      s##i##j = hn::MulAdd(r##i, x##j, s##i##j); \
  }
    TENON_SUMS(TENON_SUM)
#undef TENON_SUM
  };
  constexpr bool kHalves = kVectors == 1;
  constexpr std::int64_t kParts = kHalves ? 2 : 1;
  std::int64_t i = 0;
  for (; i + kParts * lanes <= task.length; i += kParts * lanes) {
    add(std::false_type(), [&](const auto* from) { return load(d, from + i); });
    if constexpr (kHalves)
      add(std::true_type(), [&](const auto* from) { return load(d, from + i + lanes); });
    if (sizeof(From) == 2 && vector == 0)
      for (int r = 0; r < kRows; ++r)
        fetch(row + (kRows + r) * task.row_stride + i, kParts * lanes);
  }
  if (i < task.length) {
    const std::int64_t rest = task.length - i;
    add(std::false_type(), [&](const auto* from) { return load_first(d, from + i, rest); });
    if (kHalves && rest > lanes)
      add(std::true_type(), [&](const auto* from) {
        return load_first(d, from + i + lanes, rest - lanes);
      });
  }
  Sum<From> sums[4];
#define TENON_VECTOR(v)                                                                        \
  if constexpr (v < kVectors) {                                                                \
    put_sums(d, hn::Add(s0##v, t0##v), hn::Add(s1##v, t1##v), hn::Add(s2##v, t2##v),           \
             hn::Add(s3##v, t3##v), sums);                                                     \
    for (int r = 0; r < kRows; ++r) put<From>(task, first + r, vector + v, sums[r]);           \
  }
  TENON_VECTOR(0) TENON_VECTOR(1) TENON_VECTOR(2) TENON_VECTOR(3)
#undef TENON_VECTOR
#undef TENON_SUMS
#undef TENON_ROWS
}

// Vectors in groups of about one size.
template <int kRows, typename From, typename X>
void rows_by_vectors(const cpu::VectorTask& task, std::int64_t first) {
  if (task.count == 1) return some_rows<kRows, 1, From, X>(task, first, 0);
  const std::int64_t groups = (task.count + kMostVectors - 1) / kMostVectors;
  for (std::int64_t g = 0, v = 0, next; g < groups; ++g, v = next) {
    next = (g + 1) * task.count / groups;
    if (next - v == 1) some_rows<kRows, 1, From, X>(task, first, v);
    if (next - v == 2) some_rows<kRows, 2, From, X>(task, first, v);
    if constexpr (kMostVectors == 4) {
      if (next - v == 3) some_rows<kRows, 3, From, X>(task, first, v);
      if (next - v == 4) some_rows<kRows, 4, From, X>(task, first, v);
    }
  }
}
template <typename From, typename X>
void rows_of(const cpu::VectorTask& task, std::int64_t begin, std::int64_t end) {
  for (; begin + kRows <= end; begin += kRows) rows_by_vectors<kRows, From, X>(task, begin);
  for (; begin < end; ++begin) rows_by_vectors<1, From, X>(task, begin);
}

// Strips of columns, whose sums stay in the first-level cache while four rows at a time pass by.
// The fewer the vectors, the wider: processors foresee long stretches of a row better.
constexpr std::int64_t kSums = 4096;
constexpr std::int64_t kRowsTogether = 4;

// sums[c] += x[0] rows[0][c] + ... for a vector x and, kPair, the one behind it, whose sums are
// `strip` further on; whole vectors of sums.
template <int kRows, bool kPair, typename From, typename X, typename T>
HWY_INLINE void add_rows(T* sums, std::int64_t strip, const From* row, std::int64_t stride,
                         const X* x, std::int64_t length, std::int64_t count) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto factor = [&](const X* of, int r) {
    return hn::Set(d, r < kRows ? static_cast<T>(of[r]) : T(0));
  };
  const X* const y = kPair ? x + length : x;
  const auto x0 = factor(x, 0), x1 = factor(x, 1), x2 = factor(x, 2), x3 = factor(x, 3);
  const auto y0 = factor(y, 0), y1 = factor(y, 1), y2 = factor(y, 2), y3 = factor(y, 3);
  const auto add = [&](std::int64_t c, auto of) HWY_ATTR {
    const auto r0 = of(row + c), r1 = kRows > 1 ? of(row + c + stride) : r0;
    const auto r2 = kRows > 2 ? of(row + c + 2 * stride) : r0;
    const auto r3 = kRows > 3 ? of(row + c + 3 * stride) : r0;
    const auto to = [&](T* at, auto f0, auto f1, auto f2, auto f3) HWY_ATTR {
      auto sum = hn::MulAdd(f0, r0, hn::LoadU(d, at));
      if (kRows > 1) sum = hn::MulAdd(f1, r1, sum);
      if (kRows > 2) sum = hn::MulAdd(f2, r2, sum);
      if (kRows > 3) sum = hn::MulAdd(f3, r3, sum);
      hn::StoreU(sum, d, at);
    };
    to(sums + c, x0, x1, x2, x3);
    if (kPair) to(sums + strip + c, y0, y1, y2, y3);
  };
  std::int64_t c = 0;
  for (; c + lanes <= count; c += lanes)
    add(c, [&](const From* from) { return load(d, from); });
  if (c < count) add(c, [&](const From* from) { return load_first(d, from, count - c); });
}

template <typename From, typename X>
void columns_of(const cpu::VectorTask& task, std::int64_t begin, std::int64_t end) {
  using T = Sum<From>;
  const auto* vectors = static_cast<const X*>(task.vectors);
  constexpr std::int64_t kUnit = kSums / cpu::kFewVectors;
  const std::int64_t strip = cpu::kFewVectors / task.count * kUnit;
  alignas(64) T sums[kSums];
  for (std::int64_t first = begin; first < end; first += strip) {
    const std::int64_t count = std::min(strip, end - first);
    std::fill_n(sums, task.count * strip, T(0));
    const auto* row = static_cast<const From*>(task.matrix) + first;
    for (std::int64_t l = 0; l < task.length; l += kRowsTogether) {
      const std::int64_t rows = std::min(kRowsTogether, task.length - l);
      if (sizeof(From) == 2)  // a strip is too short to be foreseen
        for (std::int64_t r = 0; r < rows; ++r)
          fetch(row + (kRowsTogether + r) * task.row_stride, count);
      const auto add = [&](auto together, auto pair, std::int64_t v) HWY_ATTR {
        add_rows<together, pair>(sums + v * strip, strip, row, task.row_stride,
                                 vectors + v * task.length + l, task.length, count);
      };
      using Four = std::integral_constant<int, 4>;
      std::int64_t v = 0;
      for (; rows == 4 && v + 2 <= task.count; v += 2) add(Four(), std::true_type(), v);
      for (; rows == 4 && v < task.count; ++v) add(Four(), std::false_type(), v);
      for (; v < task.count; ++v)
        for (std::int64_t r = 0; r < rows; ++r)
          add_rows<1, false>(sums + v * strip, strip, row + r * task.row_stride, 0,
                             vectors + v * task.length + l + r, 0, count);
      row += rows * task.row_stride;
    }
    for (std::int64_t v = 0; v < task.count; ++v)
      for (std::int64_t c = 0; c < count; ++c) put<From>(task, first + c, v, sums[v * strip + c]);
  }
}

template <typename From>
cpu::VectorKernels kernels_of() {
  return {&rows_of<From, Sum<From>>, &columns_of<From, Sum<From>>};
}

}  // namespace

cpu::VectorKernels vector_kernels(DType dtype) {
  if (dtype == DType::kF64) return kernels_of<double>();
  if (dtype == DType::kBF16) return kernels_of<BFloat16>();
  return dtype == DType::kF16 ? kernels_of<Half>() : kernels_of<float>();
}

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(vector_kernels);

namespace {

using cpu::Sum;

// Lines of `length` elements: the columns of a matrix, or, transposed, its memory's rows.
struct Lines {
  cpu::Matrix matrix;
  std::int64_t count, length;

  std::int64_t step() const { return matrix.transposed ? 1 : matrix.row_stride; }
  std::int64_t apart() const { return matrix.transposed ? matrix.row_stride : 1; }
  // One behind the other, without gaps.
  bool is_dense() const {
    return (step() == 1 || length == 1) && (count == 1 || apart() == length);
  }
};

template <typename T>
std::vector<T> gathered(const Lines& lines) {
  std::vector<T> dense(static_cast<std::size_t>(lines.count * lines.length));
  T* to = dense.data();
  for (std::int64_t i = 0; i < lines.count; ++i) {
    const T* const from = static_cast<const T*>(lines.matrix.data) + i * lines.apart();
    for (std::int64_t l = 0; l < lines.length; ++l) *to++ = from[l * lines.step()];
  }
  return dense;
}

// `task` without its lines and vectors; the lines lie as columns do, unless their steps are 1.
template <typename From>
void run(DType dtype, cpu::VectorTask task, const Lines& lines, const Lines& vectors) {
  // Few columns fill no vector register.
  constexpr std::int64_t kFewColumns = 16;
  bool by_rows = lines.step() == 1;
  std::vector<From> rows, dense;
  std::vector<Sum<From>> wide;
  task.matrix = lines.matrix.data;
  task.row_stride = lines.matrix.row_stride;
  const bool meets_many = vectors.count > 1 || sizeof(From) == 2;
  if (!by_rows && lines.count < kFewColumns && meets_many) {
    rows = gathered<From>(lines);
    task.matrix = rows.data();
    task.row_stride = lines.length;
    by_rows = true;
  }
  task.vectors = vectors.matrix.data;
  if (!vectors.is_dense()) {
    dense = gathered<From>(vectors);
    task.vectors = dense.data();
  }
  // What all lines meet is widened once.
  if constexpr (!std::is_same_v<From, Sum<From>>) {
    wide.resize(static_cast<std::size_t>(vectors.count * vectors.length));
    tenon::detail::convert_dense(wide.data(), static_cast<const From*>(task.vectors),
                                 vectors.count * vectors.length);
    task.vectors = wide.data();
  }
  const cpu::VectorKernels kernels = HWY_DYNAMIC_DISPATCH(vector_kernels)(dtype);
  // Whole strips of columns, and groups of rows.
  const std::int64_t unit = by_rows ? 4 : 256;
  constexpr std::int64_t kWork = 65536;
  const std::int64_t units = std::max<std::int64_t>(
      1, kWork / (unit * task.count * std::max<std::int64_t>(1, task.length)));
  parallel_for(0, lines.count, units * unit, [&](std::int64_t begin, std::int64_t end) {
    (by_rows ? kernels.rows : kernels.columns)(task, begin, end);
  });
}

}  // namespace

void cpu::vector_product(const Products& p) {
  const Lines rows{{p.a.data, p.a.row_stride, !p.a.transposed}, p.m, p.k}, columns{p.b, p.n, p.k};
  const bool left = p.m <= p.n;  // the vectors are
  const Lines& vectors = left ? rows : columns;
  const Lines& lines = left ? columns : rows;
  const VectorTask task{.length = p.k,
                        .count = vectors.count,
                        .beta = p.beta,
                        .out = p.out,
                        .line_step = left ? 1 : p.out_stride,
                        .vector_step = left ? p.out_stride : 1,
                        .is_narrow = p.is_narrow};
  if (p.dtype == DType::kF64) return run<double>(p.dtype, task, lines, vectors);
  if (p.dtype == DType::kF32) return run<float>(p.dtype, task, lines, vectors);
  if (p.dtype == DType::kBF16) return run<BFloat16>(p.dtype, task, lines, vectors);
  run<Half>(p.dtype, task, lines, vectors);
}

}  // namespace tenon::ops
#endif
