// Polynomials and powers of two for vector forms. Included once for each instruction set, so
// without a plain include guard.
#include <cstddef>
#include <cstdint>

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

// f32: exp(x) to 1 unit in the last place or so. Requires: |x| <= kShortExpLimit.
constexpr float kShortExpLimit = 87;
template <class D, class V>
HWY_INLINE V short_exp(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V log2e = hn::Set(d, 1.44269502F);        // and what f32 leaves off
  const V log2e_rest = hn::Set(d, 1.92596303e-8F);
  const V shifter = hn::Set(d, kToInteger);
  const V shifted = hn::MulAdd(x, log2e, shifter);
  const V whole = hn::Sub(shifted, shifter);
  return power_of_two(d, shifted,
                      hn::MulAdd(x, log2e_rest, hn::MulSub(x, log2e, whole)));
}

}  // namespace
}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
