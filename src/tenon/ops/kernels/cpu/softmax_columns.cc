// Softmax down columns that lie side by side: passes along the rows, so that nothing is transposed.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/softmax_columns.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
// clang-format on

#include <algorithm>
#include <cmath>
#include <limits>

#include "tenon/ops/dense_lines.h"
#include "tenon/ops/kernels/cpu/softmax_rows.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kWidest = DenseLines::kWidest;
constexpr std::int64_t kRowsAtOnce = 256;  // summed in T before they go into the f64 sums

// A strip of columns and what is gathered down each.
template <typename T>
struct Strip {
  // Sums of exp(x - largest), written to `out` where that is not null.
  void sum_up(T* out, const T* in, std::int64_t length, std::int64_t stride, std::int64_t count) {
    find_largest(in, length, stride, count);
    std::fill_n(sums, count, 0.0);
    for (std::int64_t row = 0; row < length; row += kRowsAtOnce) {
      std::fill_n(partial, count, T(0));
      const std::int64_t stop = std::min(length, row + kRowsAtOnce);
      for (std::int64_t r = row; r < stop; ++r)
        add_row(out == nullptr ? nullptr : out + r * stride, in + r * stride, count);
      for (std::int64_t c = 0; c < count; ++c) sums[c] += static_cast<double>(partial[c]);
    }
  }

  // The logarithms of those sums, in `sums`.
  void log_sums(const T* in, std::int64_t length, std::int64_t stride, std::int64_t count) {
    sum_up(nullptr, in, length, stride, count);
    const hn::ScalableTag<double> d;
    const auto step = static_cast<std::int64_t>(hn::Lanes(d));
    std::fill(sums + count, sums + std::min(kWidest, (count + step - 1) / step * step), 1.0);
    for (std::int64_t c = 0; c < count; c += step)
      hn::Store(hn::Log(d, hn::Load(d, sums + c)), d, sums + c);
  }

  // A column of which nothing is left (all -inf) or that has a NaN becomes NaN, as in PyTorch.
  bool has_softmax(std::int64_t c) const {
    return largest[c] > -std::numeric_limits<T>::infinity() &&
           largest[c] < std::numeric_limits<T>::infinity();
  }

  alignas(64) T largest[kWidest];
  alignas(64) T partial[kWidest];
  alignas(64) double sums[kWidest];

 private:
  // The largest of each column, which is taken away; NaN if there is one.
  void find_largest(const T* in, std::int64_t length, std::int64_t stride, std::int64_t count) {
    std::fill_n(largest, count, -std::numeric_limits<T>::infinity());
    for (std::int64_t row = 0; row < length; ++row, in += stride) {
#pragma GCC ivdep
      for (std::int64_t c = 0; c < count; ++c)
        largest[c] = in[c] > largest[c] || in[c] != in[c] ? in[c] : largest[c];
    }
  }
  HWY_INLINE void add_row(T* out, const T* in, std::int64_t count) {
    const hn::ScalableTag<T> d;
    const auto step = static_cast<std::int64_t>(hn::Lanes(d));
    std::int64_t c = 0;
    for (; c + step <= count; c += step) {
      const auto e = hn::Exp(d, hn::Sub(hn::LoadU(d, in + c), hn::Load(d, largest + c)));
      if (out != nullptr) hn::StoreU(e, d, out + c);
      hn::Store(hn::Add(hn::Load(d, partial + c), e), d, partial + c);
    }
    for (; c < count; ++c) {
      const hn::CappedTag<T, 1> one;
      const T e = hn::GetLane(hn::Exp(one, hn::Set(one, in[c] - largest[c])));
      if (out != nullptr) out[c] = e;
      partial[c] += e;
    }
  }
};

template <typename T>
void softmax_columns(void* out, const void* in, std::int64_t length, std::int64_t stride,
                     std::int64_t count) {
  auto* result = static_cast<T*>(out);
  const auto* x = static_cast<const T*>(in);
  Strip<T> strip;
  strip.sum_up(result, x, length, stride, count);
  T* scale = strip.partial;
  for (std::int64_t c = 0; c < count; ++c)
    scale[c] = strip.has_softmax(c) ? static_cast<T>(1 / strip.sums[c])
                                    : std::numeric_limits<T>::quiet_NaN();
  for (std::int64_t row = 0; row < length; ++row, result += stride) {
#pragma GCC ivdep
    for (std::int64_t c = 0; c < count; ++c) result[c] *= scale[c];
  }
}

template <typename T>
void log_softmax_columns(void* out, const void* in, std::int64_t length, std::int64_t stride,
                         std::int64_t count) {
  auto* result = static_cast<T*>(out);
  const auto* x = static_cast<const T*>(in);
  Strip<T> strip;
  strip.log_sums(x, length, stride, count);
  T* log_sum = strip.partial;
  for (std::int64_t c = 0; c < count; ++c)
    log_sum[c] = strip.has_softmax(c) ? static_cast<T>(strip.sums[c])
                                      : std::numeric_limits<T>::quiet_NaN();
  for (std::int64_t row = 0; row < length; ++row, result += stride, x += stride) {
#pragma GCC ivdep
    for (std::int64_t c = 0; c < count; ++c) result[c] = (x[c] - strip.largest[c]) - log_sum[c];
  }
}

template <typename T>
void log_sum_columns(void* out, const void* in, std::int64_t length, std::int64_t stride,
                     std::int64_t count) {
  auto* result = static_cast<T*>(out);
  Strip<T> strip;
  strip.log_sums(static_cast<const T*>(in), length, stride, count);
  for (std::int64_t c = 0; c < count; ++c) {
    const T largest = strip.largest[c];
    result[c] = strip.has_softmax(c)
                    ? static_cast<T>(static_cast<double>(largest) + strip.sums[c])
                    : largest;
  }
}

}  // namespace

cpu::ColumnFunctions column_functions(DType compute) {
  if (compute == DType::kF64)
    return {&softmax_columns<double>, &log_softmax_columns<double>, &log_sum_columns<double>};
  return {&softmax_columns<float>, &log_softmax_columns<float>, &log_sum_columns<float>};
}

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(column_functions);

cpu::ColumnFunctions cpu::column_functions(DType compute) {
  return HWY_DYNAMIC_DISPATCH(column_functions)(compute);
}

}  // namespace tenon::ops
#endif
