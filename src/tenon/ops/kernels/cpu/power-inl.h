// Powers of positive numbers. Included once for each instruction set, so without a plain include
// guard.
#include <cstdint>

#include "hwy/highway.h"
#include "tenon/ops/kernels/cpu/elementary-inl.h"

#if defined(TENON_OPS_POWER_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_OPS_POWER_INL_H
#undef TENON_OPS_POWER_INL_H
#else
#define TENON_OPS_POWER_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

// x = m 2^e for a positive normal x, with m from sqrt(1/2) to sqrt(2).
template <class V>
struct Parts {
  V m, e;
};
template <class D, class V>
HWY_INLINE Parts<V> split(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> bits;
  const auto whole = hn::BitCast(bits, x);
  const auto exponent =
      hn::ShiftRight<52>(hn::Sub(whole, hn::Set(bits, std::int64_t{0x3fe6a09e667f3bcd})));
  return {hn::BitCast(d, hn::Sub(whole, hn::ShiftLeft<52>(exponent))),
          hn::ConvertTo(d, exponent)};
}

// 2^t (1 + rest ln 2) by a polynomial c of 2^x from -1/2 to 1/2. Requires: the result is a normal
// number.
template <class D, class V, std::size_t N>
HWY_INLINE V exp2_of(D d, V t, V rest, const double (&c)[N]) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V shifter = hn::Set(d, 1.5 * 4503599627370496.0);  // leaves the nearest integer below
  const V shifted = hn::Add(t, shifter);
  const V power = polynomial(d, hn::Sub(t, hn::Sub(shifted, shifter)), c);
  const V corrected =
      hn::MulAdd(power, hn::Mul(rest, hn::Set(d, 0.69314718055994531)), power);
  const hn::RebindToUnsigned<D> bits;
  const auto exponent = hn::ShiftLeft<52>(hn::BitCast(bits, shifted));
  return hn::BitCast(d, hn::Add(hn::BitCast(bits, corrected), exponent));
}

// x^y = 2^(y log2 x), log2 m = s (c0 + c1 s^2 + ...) for s = (m - 1) / (m + 1). To 1e-8, and beyond
// 2^1000 or below 2^-1000 that.
template <class D, class V>
HWY_INLINE V short_power(D d, V x, V y) {
  namespace hn = hwy::HWY_NAMESPACE;
  static constexpr double kLog[] = {2.88539008177785, 0.9617966941136789, 0.5770779422570137,
      0.41220926421902865, 0.31990517522268347, 0.282908094776012};
  static constexpr double kExp[] = {1.0000000005546559, 0.6931472057356112, 0.24022646887003052,
      0.05550328779634303, 0.00961848935016805, 0.0013399930362110153, 0.00015345706266762157};
  const auto [m, e] = split(d, x);
  const V one = hn::Set(d, 1.0);
  const V s = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  const V log2x = hn::MulAdd(s, polynomial(d, hn::Mul(s, s), kLog), e);
  const V limit = hn::Set(d, 1000.0);
  const V t = hn::Max(hn::Neg(limit), hn::Min(limit, hn::Mul(y, log2x)));
  return exp2_of(d, t, hn::Zero(d), kExp);
}

// The same to 2 units in the last place of f64. The logarithm has to be known to some 65 bits: so
// s, its square, and the first two terms are sums of two numbers each, one and what it leaves off.
template <class D, class V>
HWY_INLINE V power(D d, V x, V y) {
  namespace hn = hwy::HWY_NAMESPACE;
  // 2 / ln 2 and a third of it; then the series from s^5 on.
  const V c0 = hn::Set(d, 0x1.71547652b82fep+1), c0_low = hn::Set(d, 0x1.777d0ffda0d24p-55);
  const V c1 = hn::Set(d, 0x1.ec709dc3a03fdp-1), c1_low = hn::Set(d, 0x1.d27f05548af0cp-55);
  static constexpr double kLog[] = {0.5770780163555853, 0.41219858311114393, 0.32059889796712404,
      0.2623081914747815, 0.22195278790462436, 0.19238060177663205, 0.16888436256641573,
      0.16913916964964307};
  static constexpr double kExp[] = {1.0, 0.6931471805599453, 0.24022650695910155,
      0.05550410866481992, 0.009618129107588335, 0.0013333558146790155, 0.00015403530462513348,
      1.5252733489773414e-05, 1.321543309031549e-06, 1.0178198110771575e-07, 7.074105488785012e-09,
      4.435269178892337e-10};
  const auto [m, e] = split(d, x);
  const V one = hn::Set(d, 1.0);
  const V v = hn::Add(m, one), v_low = hn::Sub(m, hn::Sub(v, one));
  const V u = hn::Sub(m, one), inverse = hn::Div(one, v);
  const V s = hn::Mul(u, inverse);
  const V s_low = hn::Mul(
      hn::Sub(hn::Sub(hn::Sub(u, hn::Mul(s, v)), product_rest(d, s, v)), hn::Mul(s, v_low)),
      inverse);
  const V w = hn::Mul(s, s), w_low = hn::MulAdd(hn::Add(s, s), s_low, product_rest(d, s, s));
  const V q = hn::Mul(s, w),
          q_low = hn::MulAdd(s, w_low, hn::MulAdd(s_low, w, product_rest(d, s, w)));
  const V a = hn::Mul(s, c0),
          a_low = hn::MulAdd(s, c0_low, hn::MulAdd(s_low, c0, product_rest(d, s, c0)));
  const V b = hn::Mul(q, c1),
          b_low = hn::MulAdd(q, c1_low, hn::MulAdd(q_low, c1, product_rest(d, q, c1)));
  const V series = hn::Mul(hn::Mul(q, w), polynomial(d, w, kLog));
  const V first = hn::Add(e, a), first_low = hn::Add(hn::Sub(a, hn::Sub(first, e)), a_low);
  const V second = hn::Add(first, b),
          second_low = hn::Add(hn::Sub(b, hn::Sub(second, first)), b_low);
  const V low = hn::Add(hn::Add(first_low, second_low), series);
  const V log = hn::Add(second, low), log_low = hn::Sub(low, hn::Sub(log, second));
  const V t = hn::Mul(y, log), t_low = hn::MulAdd(y, log_low, product_rest(d, y, log));
  return exp2_of(d, t, t_low, kExp);
}

}  // namespace
}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
