// Products of a matrix and a few vectors, for each instruction set.
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
#include "tenon/tensor/half_rows.h"

#ifndef TENON_OPS_VECTOR_PRODUCT_TASK
#define TENON_OPS_VECTOR_PRODUCT_TASK
namespace tenon::ops::cpu {

// out[i * line_step + v * vector_step] = (line i of the matrix) times (vector v) + beta out, for
// lines [begin, end): rows of `length` elements, or columns of as many. Vectors are dense, one
// behind the other, of the matrix's dtype or, `is_wide`, of that of sums.
struct VectorTask {
  const void* matrix = nullptr;
  std::int64_t row_stride = 0, length = 0;
  const void* vectors = nullptr;
  std::int64_t count = 0;  // of vectors
  bool is_wide = false;
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

// A vector of elements, widened.
template <class D, class V>
HWY_INLINE hn::Vec<D> widened(D d, V bits, const BFloat16*) {
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::bfloat16_t, D>(), bits));
}
template <class D, class V>
HWY_INLINE hn::Vec<D> widened(D d, V bits, const Half*) {
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
}
template <class D, typename From>
HWY_INLINE hn::Vec<D> load(D d, const From* from) {
  if constexpr (std::is_same_v<From, Half> && HWY_TARGET > HWY_AVX2) {
    // Without F16C, Highway's conversion takes infinity for a number.
    HWY_ALIGN float wide[hn::MaxLanes(d)];
    std::copy_n(from, hn::Lanes(d), wide);
    return hn::Load(d, wide);
  } else if constexpr (sizeof(From) == 2) {
    return widened(
        d, hn::LoadU(hn::Rebind<std::uint16_t, D>(), reinterpret_cast<const std::uint16_t*>(from)),
        from);
  } else {
    return hn::LoadU(d, from);
  }
}

// The first `count`, and zeros.
template <class D, typename From>
HWY_INLINE hn::Vec<D> load_some(D d, const From* from, std::int64_t count) {
  constexpr bool kLoadsParts = HWY_TARGET <= (sizeof(From) == 2 ? HWY_AVX3 : HWY_AVX2);
  const std::int64_t kept =
      std::clamp<std::int64_t>(count, 0, static_cast<std::int64_t>(hn::Lanes(d)));
  if constexpr (kLoadsParts && sizeof(From) == 2) {
    const hn::Rebind<std::uint16_t, D> bits;
    const auto mask = hn::FirstN(bits, static_cast<std::size_t>(kept));
    return widened(d, hn::MaskedLoad(mask, bits, reinterpret_cast<const std::uint16_t*>(from)),
                   from);
  } else if constexpr (kLoadsParts) {
    return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(kept)), d, from);
  } else {
    HWY_ALIGN From some[hn::MaxLanes(d)] = {};
    std::copy_n(from, kept, some);
    return load(d, some);
  }
}

// Brings what is read soon nearer: processors foresee no further than to the end of a page.
template <typename From>
HWY_INLINE void fetch(const From* from, std::int64_t count) {
  constexpr std::int64_t kLine = 64 / sizeof(From);
  for (std::int64_t i = 0; i < count; i += kLine) __builtin_prefetch(from + i, 0, 2);
}

// Two rows share what is loaded of a vector, and two vectors what is loaded of a row. A sum does
// not depend on its neighbours.
template <int kRows, int kVectors, typename From, typename X>
void some_rows(const cpu::VectorTask& task, std::int64_t first, std::int64_t vector) {
  const hn::ScalableTag<Sum<From>> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto* row = static_cast<const From*>(task.matrix) + first * task.row_stride;
  const auto* below = row + (kRows > 1 ? task.row_stride : 0);
  const auto* x = static_cast<const X*>(task.vectors) + vector * task.length;
  const auto* y = x + (kVectors > 1 ? task.length : 0);
  auto rx0 = hn::Zero(d), rx1 = rx0, bx0 = rx0, bx1 = rx0;
  auto ry0 = rx0, ry1 = rx0, by0 = rx0, by1 = rx0;
  const auto add = [&](auto of) {  // of(elements, place): a vector
    const auto x0 = of(x, 0), x1 = of(x, lanes), r0 = of(row, 0), r1 = of(row, lanes);
    rx0 = hn::MulAdd(r0, x0, rx0);
    rx1 = hn::MulAdd(r1, x1, rx1);
    const auto y0 = kVectors > 1 ? of(y, 0) : x0, y1 = kVectors > 1 ? of(y, lanes) : x1;
    const auto b0 = kRows > 1 ? of(below, 0) : r0, b1 = kRows > 1 ? of(below, lanes) : r1;
    if (kVectors > 1) ry0 = hn::MulAdd(r0, y0, ry0), ry1 = hn::MulAdd(r1, y1, ry1);
    if (kRows > 1) bx0 = hn::MulAdd(b0, x0, bx0), bx1 = hn::MulAdd(b1, x1, bx1);
    if (kRows > 1 && kVectors > 1) by0 = hn::MulAdd(b0, y0, by0), by1 = hn::MulAdd(b1, y1, by1);
  };
  std::int64_t i = 0;
  for (; i + 2 * lanes <= task.length; i += 2 * lanes) {
    add([&](const auto* from, std::int64_t at) { return load(d, from + i + at); });
    if (vector == 0) {
      fetch(row + kRows * task.row_stride + i, 2 * lanes);
      if (kRows > 1) fetch(below + kRows * task.row_stride + i, 2 * lanes);
    }
  }
  if (i < task.length)
    add([&](const auto* from, std::int64_t at) {
      return load_some(d, from + i + at, task.length - i - at);
    });
  const auto total = [&](auto a, auto b) {
    return hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
  };
  put<From>(task, first, vector, total(rx0, rx1));
  if (kRows > 1) put<From>(task, first + 1, vector, total(bx0, bx1));
  if (kVectors > 1) put<From>(task, first, vector + 1, total(ry0, ry1));
  if (kRows > 1 && kVectors > 1) put<From>(task, first + 1, vector + 1, total(by0, by1));
}
template <int kRows, typename From, typename X>
void rows_by_vectors(const cpu::VectorTask& task, std::int64_t first) {
  std::int64_t v = 0;
  for (; v + 2 <= task.count; v += 2) some_rows<kRows, 2, From, X>(task, first, v);
  if (v < task.count) some_rows<kRows, 1, From, X>(task, first, v);
}
template <typename From, typename X>
void rows_of(const cpu::VectorTask& task, std::int64_t begin, std::int64_t end) {
  for (; begin + 2 <= end; begin += 2) rows_by_vectors<2, From, X>(task, begin);
  if (begin < end) rows_by_vectors<1, From, X>(task, begin);
}

// Strips of columns, whose sums stay in the first-level cache while four rows at a time pass by.
constexpr std::int64_t kStrip = 512;
constexpr std::int64_t kRowsTogether = 4;

// sums[c] += x[0] rows[0][c] + ...; whole vectors of sums.
template <int kRows, typename From, typename X, typename T>
HWY_INLINE void add_rows(T* sums, const From* row, std::int64_t stride, const X* x,
                         std::int64_t count) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto factor = [&](int r) {
    return hn::Set(d, r < kRows ? static_cast<T>(x[r]) : T(0));
  };
  const auto x0 = factor(0), x1 = factor(1), x2 = factor(2), x3 = factor(3);
  const auto add = [&](std::int64_t c, auto of) {
    auto sum = hn::MulAdd(x0, of(row + c), hn::LoadU(d, sums + c));
    if (kRows > 1) sum = hn::MulAdd(x1, of(row + c + stride), sum);
    if (kRows > 2) sum = hn::MulAdd(x2, of(row + c + 2 * stride), sum);
    if (kRows > 3) sum = hn::MulAdd(x3, of(row + c + 3 * stride), sum);
    hn::StoreU(sum, d, sums + c);
  };
  std::int64_t c = 0;
  for (; c + lanes <= count; c += lanes)
    add(c, [&](const From* from) { return load(d, from); });
  if (c < count) add(c, [&](const From* from) { return load_some(d, from, count - c); });
}

template <typename From, typename X>
void columns_of(const cpu::VectorTask& task, std::int64_t begin, std::int64_t end) {
  using T = Sum<From>;
  const auto* vectors = static_cast<const X*>(task.vectors);
  for (std::int64_t first = begin; first < end; first += kStrip) {
    const std::int64_t count = std::min(kStrip, end - first);
    alignas(64) T sums[cpu::kFewVectors][kStrip];
    for (std::int64_t v = 0; v < task.count; ++v) std::fill_n(sums[v], kStrip, T(0));
    const auto* row = static_cast<const From*>(task.matrix) + first;
    for (std::int64_t l = 0; l < task.length; l += kRowsTogether) {
      const std::int64_t rows = std::min(kRowsTogether, task.length - l);
      if (sizeof(From) == 2)  // a strip is too short to be foreseen
        for (std::int64_t r = 0; r < rows; ++r)
          fetch(row + (kRowsTogether + r) * task.row_stride, count);
      for (std::int64_t v = 0; v < task.count; ++v) {
        const X* const x = vectors + v * task.length + l;
        if (rows == 4) add_rows<4>(sums[v], row, task.row_stride, x, count);
        if (rows == 3) add_rows<3>(sums[v], row, task.row_stride, x, count);
        if (rows == 2) add_rows<2>(sums[v], row, task.row_stride, x, count);
        if (rows == 1) add_rows<1>(sums[v], row, task.row_stride, x, count);
      }
      row += rows * task.row_stride;
    }
    for (std::int64_t v = 0; v < task.count; ++v)
      for (std::int64_t c = 0; c < count; ++c) put<From>(task, first + c, v, sums[v][c]);
  }
}

template <typename From>
cpu::VectorKernels kernels_of(bool is_wide) {
  if constexpr (!std::is_same_v<From, Sum<From>>)
    if (is_wide) return {&rows_of<From, float>, &columns_of<From, float>};
  return {&rows_of<From, From>, &columns_of<From, From>};
}

}  // namespace

cpu::VectorKernels vector_kernels(DType dtype, bool is_wide) {
  if (dtype == DType::kF64) return kernels_of<double>(is_wide);
  if (dtype == DType::kBF16) return kernels_of<BFloat16>(is_wide);
  if (dtype == DType::kF16) return kernels_of<Half>(is_wide);
  return kernels_of<float>(is_wide);
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
  // What many lines meet is widened once.
  constexpr std::int64_t kMany = 8;
  if constexpr (!std::is_same_v<From, Sum<From>>)
    if (lines.count >= kMany) {
      wide.resize(static_cast<std::size_t>(vectors.count * vectors.length));
      tenon::detail::convert_dense(wide.data(), static_cast<const From*>(task.vectors),
                                   vectors.count * vectors.length);
      task.vectors = wide.data();
      task.is_wide = true;
    }
  const cpu::VectorKernels kernels = HWY_DYNAMIC_DISPATCH(vector_kernels)(dtype, task.is_wide);
  // Whole strips of columns, and groups of rows.
  const std::int64_t unit = by_rows ? 2 : 256;
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
