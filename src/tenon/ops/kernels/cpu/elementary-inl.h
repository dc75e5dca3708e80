// Polynomials and powers of two for vector forms. Included once for each instruction set, so
// without a plain include guard.
#include <cstddef>
#include <cstdint>
#include <numbers>

#include "hwy/highway.h"

#if defined(TENON_OPS_ELEMENTARY_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_OPS_ELEMENTARY_INL_H
#undef TENON_OPS_ELEMENTARY_INL_H
#else
#define TENON_OPS_ELEMENTARY_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

// c[0] + c[1] x + c[2] x^2 + ...
template <class D, class V, typename T, std::size_t N>
HWY_INLINE V polynomial(D d, V x, const T (&c)[N]) {
  namespace hn = hwy::HWY_NAMESPACE;
  V sum = hn::Set(d, c[N - 1]);
  for (std::size_t i = N - 1; i-- > 0;) sum = hn::MulAdd(sum, x, hn::Set(d, c[i]));
  return sum;
}

// The same as two chains, of the even and of the odd powers, which wait half as long: for long
// ones. It rounds once more.
template <class D, class V, typename T, std::size_t N>
HWY_INLINE V polynomial_by_pairs(D d, V x, const T (&c)[N]) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V square = hn::Mul(x, x);
  V sums[2] = {hn::Set(d, c[(N - 1) / 2 * 2]), hn::Set(d, c[N / 2 * 2 - 1])};
  for (std::size_t i = (N - 1) / 2 * 2; i >= 2; i -= 2)
    sums[0] = hn::MulAdd(sums[0], square, hn::Set(d, c[i - 2]));
  for (std::size_t i = N / 2 * 2 - 1; i >= 3; i -= 2)
    sums[1] = hn::MulAdd(sums[1], square, hn::Set(d, c[i - 2]));
  return hn::MulAdd(sums[1], x, sums[0]);
}

// a b less the rounded product, as it is where neither overflows nor underflows.
template <class D, class V>
HWY_INLINE V product_rest(D d, V a, V b) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V product = hn::Mul(a, b);
#if HWY_NATIVE_FMA
  static_cast<void>(d);
  return hn::MulSub(a, b, product);
#else  // Dekker: by halves of both, whose products are exact
  using T = hn::TFromD<D>;
  const V splitter = hn::Set(d, sizeof(T) == 4 ? T(4097) : T(134217729));
  const auto upper = [&](V x) {
    const V scaled = hn::Mul(splitter, x);
    return hn::Sub(scaled, hn::Sub(scaled, x));
  };
  const V a_high = upper(a), a_low = hn::Sub(a, a_high);
  const V b_high = upper(b), b_low = hn::Sub(b, b_high);
  const V rest = hn::Add(hn::Sub(hn::Mul(a_high, b_high), product), hn::Mul(a_high, b_low));
  return hn::Add(hn::Add(rest, hn::Mul(a_low, b_high)), hn::Mul(a_low, b_low));
#endif
}

// f32: adding it leaves the nearest integer in the lowest bits.
constexpr float kToInteger = 1.5F * 8388608;

// f32: 2^x for |x| <= 1/2. Relative error: 1.9e-9.
constexpr float kPowerOfTwo[] = {1.0F,           0.69314718F,   0.24022646F,  0.055503286F,
                                 0.0096184891F, 0.0013399931F, 0.00015345706F};

// f32: 2^(n + rest), where `shifted` = n + kToInteger and |rest| <= 1/2. Requires: a result that is
// a normal number.
template <class D, class V>
HWY_INLINE V power_of_two(D d, V shifted, V rest) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToUnsigned<D> bits;
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(bits, shifted));
  return hn::BitCast(d, hn::Add(hn::BitCast(bits, polynomial(d, rest, kPowerOfTwo)), exponent));
}

// f64: exp(x) for |x| <= log(2) / 2. Relative error: 1.7e-17.
constexpr double kShortExp[] = {1.0,
                           1.0,
                           0.5000000000000001,
                           0.16666666666666667,
                           0.041666666666624128,
                           0.0083333333333300618,
                           0.0013888888917213717,
                           0.00019841269863053617,
                           2.4801521295954375e-5,
                           2.7557268459997065e-6,
                           2.7620088445409748e-7,
                           2.5100385495510319e-8};

// exp(x) to 1 unit in the last place or so. Requires: |x| <= kShortExpLimit.
template <typename T>
constexpr T kShortExpLimit = sizeof(T) == 4 ? T(87) : T(708);
template <class D, class V>
HWY_INLINE V short_exp(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  using T = hn::TFromD<D>;
  if constexpr (sizeof(T) == 4) {
    const V log2e = hn::Set(d, 1.44269502F);  // and what f32 leaves off
    const V log2e_rest = hn::Set(d, 1.92596303e-8F);
    const V shifter = hn::Set(d, kToInteger);
    const V shifted = hn::MulAdd(x, log2e, shifter);
    const V whole = hn::Sub(shifted, shifter);
    if constexpr (HWY_NATIVE_FMA)
      return power_of_two(d, shifted, hn::MulAdd(x, log2e_rest, hn::MulSub(x, log2e, whole)));
    const V ln2 = hn::Set(d, 0.693359375F);  // of 10 bits, so products are exact
    const V ln2_rest = hn::Set(d, -2.12194440e-4F);
    const V rest = hn::Sub(hn::Sub(x, hn::Mul(whole, ln2)), hn::Mul(whole, ln2_rest));
    return power_of_two(d, shifted, hn::Mul(rest, log2e));
  } else {
    const V log2e = hn::Set(d, std::numbers::log2e), shifter = hn::Set(d, 1.5 * 0x1p52);
    const V shifted = hn::MulAdd(x, log2e, shifter);
    const V whole = hn::Sub(shifted, shifter);
    const V ln2 = hn::Set(d, 0.69314718036912381649);  // of 32 bits, so products are exact
    const V ln2_rest = hn::Set(d, 1.9082149292705877e-10);
    const V rest = hn::NegMulAdd(whole, ln2_rest, hn::NegMulAdd(whole, ln2, x));
    const hn::RebindToUnsigned<D> bits;
    const auto exponent = hn::ShiftLeft<52>(hn::BitCast(bits, shifted));
    return hn::BitCast(d, hn::Add(hn::BitCast(bits, polynomial(d, rest, kShortExp)), exponent));
  }
}
// 0 far below 0: exp(x) of x <= 0 where what is less than a normal number is not missed.
template <class D, class V>
HWY_INLINE V short_exp_below(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  return short_exp(d, hn::Max(x, hn::Set(d, -kShortExpLimit<hn::TFromD<D>>)));
}

// tanh(x): x + x^3 P(x^2) up to 0.625 (f32: 6.1e-10, f64: 4.1e-17), from there on by exp.
template <class D, class V>
HWY_INLINE V short_tanh(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T(1)), two = hn::Set(d, T(2));
  const V size = hn::Abs(x), square = hn::Mul(x, x);
  V factor;
  if constexpr (sizeof(T) == 4) {
    static constexpr float kP[] = {-0.333333332F, 0.133333036F,   -0.0539592596F,
                                   0.0217689187F, -0.00834394552F, 0.00229274482F};
    factor = polynomial(d, square, kP);
  } else {
    static constexpr double kP[] = {
        -0.33333333333333323,   0.13333333333326658,    -0.053968253961395571,
        0.021869488260559115,   -0.0088632298309257087, 0.0035920589774734553,
        -0.001455309297534642,  0.00058743728600943819, -0.00023077616269519858,
        7.959955735264808e-05, -1.724487449484433e-05};
    factor = polynomial(d, square, kP);
  }
  const V small = hn::MulAdd(hn::Mul(size, square), factor, size);
  const V grown = short_exp(d, hn::Min(hn::Mul(size, two), hn::Set(d, T(44))));
  const V large = hn::Sub(one, hn::Div(two, hn::Add(grown, one)));
  return hn::CopySign(hn::IfThenElse(hn::Lt(size, hn::Set(d, T(0.625))), small, large), x);
}

}  // namespace
}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
