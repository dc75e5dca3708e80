// Rows of f32 and f64 for softmax and the normalisations.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/softmax_rows.cc"
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

#include "tenon/ops/kernels/cpu/softmax_rows.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

namespace hn = hwy::HWY_NAMESPACE;

// NaN if there is one.
template <typename T>
T largest_of(const T* x, std::int64_t count) {
  const hn::ScalableTag<T> d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  auto best0 = hn::Set(d, -std::numeric_limits<T>::infinity());
  auto best1 = best0;
  // A sum is NaN if any element is (or if infinities of both signs meet: looked at again below).
  auto sum = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 2 * step <= count; i += 2 * step) {
    const auto x0 = hn::LoadU(d, x + i);
    const auto x1 = hn::LoadU(d, x + i + step);
    best0 = hn::Max(best0, x0);
    best1 = hn::Max(best1, x1);
    sum = hn::Add(sum, hn::Add(x0, x1));
  }
  if constexpr (kMaskedIsExact)
    for (; i < count; i += step) {
      const auto rest = hn::FirstN(d, static_cast<std::size_t>(std::min(step, count - i)));
      const auto x0 = hn::MaskedLoad(rest, d, x + i);
      best0 = hn::Max(best0, hn::IfThenElse(rest, x0, best1));
      sum = hn::Add(sum, x0);
    }
  T largest = hn::GetLane(hn::MaxOfLanes(d, hn::Max(best0, best1)));
  T total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < count; ++i) {
    largest = x[i] > largest ? x[i] : largest;
    total += x[i];
  }
  if (total == total) return largest;
  for (i = 0; i < count; ++i)
    if (x[i] != x[i]) return x[i];
  return largest;
}

// The sum of exp(x - shift), written to `out` if kWritten. Arguments are at most 0, where Highway's
// exp is right down to minus infinity. For the sum alone, which is 1 at least, a shorter one is
// enough.
template <bool kWritten, typename T>
double exponentials(T* out, const T* in, std::int64_t count, T shift) {
  const hn::ScalableTag<T> d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  const auto minus = hn::Set(d, shift);
  const auto power = [&](auto x) HWY_ATTR {
    if constexpr (kWritten)
      return hn::Exp(d, hn::Sub(x, minus));
    else
      return short_exp_below(d, hn::Sub(x, minus));
  };
  double total = 0;
  std::int64_t i = 0;
  while (i < count) {
    auto sum = hn::Zero(d);
    const std::int64_t stop = std::min(count, i + 2048);
    for (; i + step <= stop; i += step) {
      const auto e = power(hn::LoadU(d, in + i));
      if constexpr (kWritten) hn::StoreU(e, d, out + i);
      sum = hn::Add(sum, e);
    }
    if (i < stop) {
      const auto rest = hn::FirstN(d, static_cast<std::size_t>(stop - i));
      const auto e = hn::IfThenElseZero(rest, power(load_some(d, in + i, stop - i)));
      if constexpr (kWritten) store_some(d, e, out + i, stop - i);
      sum = hn::Add(sum, e);
      i = stop;
    }
    total += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
  }
  return total;
}

// A row of which nothing is left (all -inf) or that has a NaN becomes NaN, as in PyTorch.
template <typename T>
bool has_no_softmax(T largest) {
  return !(largest > -std::numeric_limits<T>::infinity()) ||
         largest == std::numeric_limits<T>::infinity();
}

// A row of up to two vectors, which stay in registers. False, and nothing is done, where it has no
// softmax.
template <typename T>
bool softmax_in_registers(T* out, const T* in, std::int64_t count) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto lowest = hn::Set(d, -std::numeric_limits<T>::infinity());
  const auto first = hn::FirstN(d, static_cast<std::size_t>(std::min(count, lanes)));
  const auto second =
      hn::FirstN(d, static_cast<std::size_t>(std::max<std::int64_t>(count - lanes, 0)));
  const auto x = hn::IfThenElse(first, hn::MaskedLoad(first, d, in), lowest);
  const auto y = count <= lanes
                     ? lowest
                     : hn::IfThenElse(second, hn::MaskedLoad(second, d, in + lanes), lowest);
  const auto largest = hn::MaxOfLanes(d, hn::Max(x, y));
  const bool has_nan = !hn::AllFalse(d, hn::Or(hn::IsNaN(x), hn::IsNaN(y)));
  if (has_nan || has_no_softmax(hn::GetLane(largest))) return false;
  const auto of_x = hn::Exp(d, hn::Sub(x, largest));
  if (count <= lanes) {
    const auto scale = hn::Div(hn::Set(d, T(1)), hn::SumOfLanes(d, of_x));
    hn::BlendedStore(hn::Mul(of_x, scale), first, d, out);
    return true;
  }
  const auto of_y = hn::Exp(d, hn::Sub(y, largest));
  const auto scale = hn::Div(hn::Set(d, T(1)), hn::SumOfLanes(d, hn::Add(of_x, of_y)));
  hn::StoreU(hn::Mul(of_x, scale), d, out);
  hn::BlendedStore(hn::Mul(of_y, scale), second, d, out + lanes);
  return true;
}

template <typename T>
void softmax(void* out, const void* in, std::int64_t count) {
  auto* result = static_cast<T*>(out);
  const auto* x = static_cast<const T*>(in);
  if constexpr (kMaskedIsExact)
    if (count <= 2 * static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>())) &&
        softmax_in_registers(result, x, count))
      return;
  const T largest = largest_of(x, count);
  if (has_no_softmax(largest)) {
    std::fill_n(result, count, std::numeric_limits<T>::quiet_NaN());
    return;
  }
  const T scale = static_cast<T>(1 / exponentials<true>(result, x, count, largest));
  each_vector<T>(count, [&](auto d, std::int64_t i, std::int64_t n) HWY_ATTR {
    store_some(d, hn::Mul(load_some(d, result + i, n), hn::Set(d, scale)), result + i, n);
  });
}

template <typename T>
void log_softmax(void* out, const void* in, std::int64_t count) {
  auto* result = static_cast<T*>(out);
  const auto* x = static_cast<const T*>(in);
  const T largest = largest_of(x, count);
  if (has_no_softmax(largest)) {
    std::fill_n(result, count, std::numeric_limits<T>::quiet_NaN());
    return;
  }
  const T log_sum = std::log(static_cast<T>(exponentials<false, T>(nullptr, x, count, largest)));
  each_vector<T>(count, [&](auto d, std::int64_t i, std::int64_t n) HWY_ATTR {
    const auto below = hn::Sub(load_some(d, x + i, n), hn::Set(d, largest));
    store_some(d, hn::Sub(below, hn::Set(d, log_sum)), result + i, n);
  });
}

template <typename T>
double log_sum(const void* in, std::int64_t count) {
  const auto* x = static_cast<const T*>(in);
  const T largest = largest_of(x, count);
  if (has_no_softmax(largest)) return static_cast<double>(largest);
  return static_cast<double>(largest) +
         std::log(exponentials<false, T>(nullptr, x, count, largest));
}

// The sum, in f64, of elements or of squared deviations.
template <bool kSquared, typename T>
double sum_of(const T* x, std::int64_t count, double mean) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<T, decltype(d)> narrow;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto minus = hn::Set(d, mean);
  const auto wide = [&](const T* from, std::int64_t some) HWY_ATTR {
    if constexpr (std::is_same_v<T, double>)
      return load_some(narrow, from, some);
    else
      return hn::PromoteTo(d, load_some(narrow, from, some));
  };
  const auto with = [&](auto sum, auto v) HWY_ATTR {
    if constexpr (!kSquared) return hn::Add(sum, v);
    const auto y = hn::Sub(v, minus);
    return hn::MulAdd(y, y, sum);
  };
  auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  std::int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    sum0 = with(sum0, wide(x + i, lanes)), sum1 = with(sum1, wide(x + i + lanes, lanes));
    sum2 = with(sum2, wide(x + i + 2 * lanes, lanes));
    sum3 = with(sum3, wide(x + i + 3 * lanes, lanes));
  }
  for (; i + lanes <= count; i += lanes) sum0 = with(sum0, wide(x + i, lanes));
  if (i < count) {
    const auto rest = hn::FirstN(d, static_cast<std::size_t>(count - i));
    sum1 = hn::IfThenElse(rest, with(sum1, wide(x + i, count - i)), sum1);
  }
  const auto all = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  return hn::GetLane(hn::SumOfLanes(d, all));
}

// In one pass, of what is left without the first element. Where that is far from the others, the
// squares are up to `count` times the variance, and each of 8 sums of them or more is rounded
// count / 8 times. So of this many elements at most 2^-24 of the variance is lost: half a unit in
// the last place of f32.
constexpr std::int64_t kMostInOnePass = 1 << 16;
void moments_in_one_pass(const float* x, std::int64_t count, double* mean, double* variance) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> narrow;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto first = hn::Set(d, static_cast<double>(x[0]));
  const auto left = [&](std::int64_t at, std::int64_t some) HWY_ATTR {
    return hn::Sub(hn::PromoteTo(d, load_some(narrow, x + at, some)), first);
  };
  auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  auto squares0 = sum0, squares1 = sum0, squares2 = sum0, squares3 = sum0;
  std::int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const auto a = left(i, lanes), b = left(i + lanes, lanes);
    const auto c = left(i + 2 * lanes, lanes), e = left(i + 3 * lanes, lanes);
    sum0 = hn::Add(sum0, a), squares0 = hn::MulAdd(a, a, squares0);
    sum1 = hn::Add(sum1, b), squares1 = hn::MulAdd(b, b, squares1);
    sum2 = hn::Add(sum2, c), squares2 = hn::MulAdd(c, c, squares2);
    sum3 = hn::Add(sum3, e), squares3 = hn::MulAdd(e, e, squares3);
  }
  for (; i < count; i += lanes) {
    const std::int64_t some = std::min(lanes, count - i);
    const auto a = hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(some)), left(i, some));
    sum0 = hn::Add(sum0, a), squares0 = hn::MulAdd(a, a, squares0);
  }
  const auto total = [&](auto p, auto q, auto r, auto s) HWY_ATTR {
    return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(p, q), hn::Add(r, s))));
  };
  const auto number = static_cast<double>(count);
  const double shift = total(sum0, sum1, sum2, sum3) / number;
  const double apart = total(squares0, squares1, squares2, squares3) / number - shift * shift;
  *mean = static_cast<double>(x[0]) + shift;
  *variance = apart < 0 ? 0 : apart;
}

template <typename T>
void moments(const void* in, std::int64_t count, double* mean, double* variance) {
  const auto* x = static_cast<const T*>(in);
  if constexpr (std::is_same_v<T, float>) {
    if (count > 0 && count <= kMostInOnePass) return moments_in_one_pass(x, count, mean, variance);
  }
  *mean = sum_of<false>(x, count, 0) / static_cast<double>(count);
  *variance = sum_of<true>(x, count, *mean) / static_cast<double>(count);
}

template <typename T>
double mean_square(const void* in, std::int64_t count) {
  return sum_of<true>(static_cast<const T*>(in), count, 0) / static_cast<double>(count);
}

template <typename T>
void affine(void* out, const void* in, std::int64_t count, double mean, double scale,
            const void* weight, const void* bias) {
  auto* result = static_cast<T*>(out);
  const auto* x = static_cast<const T*>(in);
  const auto* w = static_cast<const T*>(weight);
  const auto* b = static_cast<const T*>(bias);
  each_vector<T>(count, [&](auto d, std::int64_t i, std::int64_t n) HWY_ATTR {
    const auto centred = hn::Sub(load_some(d, x + i, n), hn::Set(d, static_cast<T>(mean)));
    auto y = hn::Mul(centred, hn::Set(d, static_cast<T>(scale)));
    if (w != nullptr) y = hn::Mul(y, load_some(d, w + i, n));
    if (b != nullptr) y = hn::Add(y, load_some(d, b + i, n));
    store_some(d, y, result + i, n);
  });
}

template <typename T>
void scale(void* out, const void* in, std::int64_t count, double factor, double shift) {
  auto* result = static_cast<T*>(out);
  const auto* x = static_cast<const T*>(in);
  const T m = static_cast<T>(factor);
  const T s = static_cast<T>(shift);
  each_vector<T>(count, [&](auto d, std::int64_t i, std::int64_t n) HWY_ATTR {
    const auto product = hn::Mul(load_some(d, x + i, n), hn::Set(d, m));
    store_some(d, hn::Add(product, hn::Set(d, s)), result + i, n);
  });
}

template <typename T>
cpu::RowFunctions functions_of() {
  return {&softmax<T>,     &log_softmax<T>, &log_sum<T>, &moments<T>,
          &mean_square<T>, &affine<T>,      &scale<T>};
}

}  // namespace

cpu::RowFunctions row_functions(DType compute) {
  return compute == DType::kF64 ? functions_of<double>() : functions_of<float>();
}

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(row_functions);

cpu::RowFunctions cpu::row_functions(DType compute) {
  return HWY_DYNAMIC_DISPATCH(row_functions)(compute);
}

}  // namespace tenon::ops
#endif
