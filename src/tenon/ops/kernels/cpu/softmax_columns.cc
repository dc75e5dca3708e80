// Softmax down columns that lie side by side: passes along the rows, so that nothing is transposed.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/softmax_columns.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
#include "tenon/ops/kernels/cpu/vector_loop-inl.h"
#include "tenon/ops/kernels/cpu/elementary-inl.h"
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
constexpr std::int64_t kRowsTogether = 8;  // passed over for each vector of columns

// `count` columns, rounded up to whole vectors. Lanes without a column are computed, too, so they
// are set: left as they are, they may hold subnormal numbers, which take a hundred times as long.
template <typename T>
constexpr std::int64_t padded(std::int64_t count) {
  constexpr std::int64_t kMostLanes = 64 / sizeof(T);
  return (count + kMostLanes - 1) / kMostLanes * kMostLanes;
}

// Rows that will be read or written next. They may be pages apart, which processors do not fetch
// ahead by themselves.
template <int kWrite, typename T>
void fetch_rows(const T* rows, std::int64_t stride, std::int64_t count) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  if (stride < 2 * count) return;
  for (std::int64_t r = 0; r < kRowsTogether; ++r)
    for (std::int64_t c = 0; c < count; c += kLine)
      __builtin_prefetch(rows + r * stride + c, kWrite);
}

// A strip of columns and what is gathered down each.
template <typename T>
struct Strip {
  // Sums of exp(x - largest), written to `out` if kWritten. For the sums alone, which are 1 at
  // least, a shorter exp is enough.
  template <bool kWritten>
  void sum_up(T* out, const T* in, std::int64_t length, std::int64_t stride, std::int64_t count) {
    find_largest(in, length, stride, count);
    std::fill_n(sums, count, 0.0);
    for (std::int64_t row = 0; row < length;) {
      std::fill_n(partial, padded<T>(count), T(0));
      const std::int64_t stop = std::min(length, row + kRowsAtOnce);
      for (; row < stop; row += kRowsTogether) {
        const std::int64_t last = std::min(stop, row + kRowsTogether);
        if constexpr (kWritten) fetch_rows<1>(out + last * stride, stride, count);
        each_vector<T>(count, [&](auto d, std::int64_t c, std::int64_t n) HWY_ATTR {
          const auto shift = hn::Load(d, largest + c);
          auto sum = hn::Load(d, partial + c);
          for (std::int64_t r = row; r < last; ++r) {
            const auto x = hn::Sub(load_some(d, in + r * stride + c, n), shift);
            if constexpr (kWritten) {
              const auto e = hn::Exp(d, x);
              store_some(d, e, out + r * stride + c, n);
              sum = hn::Add(sum, e);
            } else {
              sum = hn::Add(sum, short_exp_below(d, x));
            }
          }
          hn::Store(sum, d, partial + c);
        });
      }
      row = stop;
      for (std::int64_t c = 0; c < count; ++c) sums[c] += static_cast<double>(partial[c]);
    }
  }

  // The logarithms of those sums, in `sums`.
  void log_sums(const T* in, std::int64_t length, std::int64_t stride, std::int64_t count) {
    sum_up<false>(nullptr, in, length, stride, count);
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
    std::fill_n(largest, padded<T>(count), -std::numeric_limits<T>::infinity());
    for (std::int64_t row = 0; row < length; row += kRowsTogether) {
      const std::int64_t last = std::min(length, row + kRowsTogether);
      fetch_rows<0>(in + last * stride, stride, count);
      each_vector<T>(count, [&](auto d, std::int64_t c, std::int64_t n) HWY_ATTR {
        auto best = hn::Load(d, largest + c);
        for (std::int64_t r = row; r < last; ++r) {
          const auto x = load_some(d, in + r * stride + c, n);
          best = hn::IfThenElse(hn::Or(hn::Gt(x, best), hn::IsNaN(x)), x, best);
        }
        hn::Store(best, d, largest + c);
      });
    }
  }
};

template <typename T>
void softmax_columns(void* out, const void* in, std::int64_t length, std::int64_t stride,
                     std::int64_t count) {
  auto* result = static_cast<T*>(out);
  const auto* x = static_cast<const T*>(in);
  Strip<T> strip;
  strip.template sum_up<true>(result, x, length, stride, count);
  T* scale = strip.partial;
  for (std::int64_t c = 0; c < count; ++c)
    scale[c] = strip.has_softmax(c) ? static_cast<T>(1 / strip.sums[c])
                                    : std::numeric_limits<T>::quiet_NaN();
  for (std::int64_t row = 0; row < length; ++row, result += stride) {
    each_vector<T>(count, [&](auto d, std::int64_t c, std::int64_t n) HWY_ATTR {
      store_some(d, hn::Mul(load_some(d, result + c, n), hn::Load(d, scale + c)), result + c, n);
    });
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
    each_vector<T>(count, [&](auto d, std::int64_t c, std::int64_t n) HWY_ATTR {
      const auto below = hn::Sub(load_some(d, x + c, n), hn::Load(d, strip.largest + c));
      store_some(d, hn::Sub(below, hn::Load(d, log_sum + c)), result + c, n);
    });
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
