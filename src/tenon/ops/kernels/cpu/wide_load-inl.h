// Loads of elements into vectors of what they are computed in, and stores back: 16-bit floats in
// f32. Included once for each instruction set, so without a plain include guard.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "tenon/tensor/half.h"

#if defined(TENON_OPS_WIDE_LOAD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_OPS_WIDE_LOAD_INL_H
#undef TENON_OPS_WIDE_LOAD_INL_H
#else
#define TENON_OPS_WIDE_LOAD_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

template <typename T>
using Wide = std::conditional_t<kIsHalf<T>, float, T>;

template <class D, class V>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> widened(D d, V bits, const BFloat16*) {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::bfloat16_t, D>(), bits));
}
template <class D, class V>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> widened(D d, V bits, const Half*) {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
}

// A vector of elements.
template <class D, typename From>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> load(D d, const From* from) {
  namespace hn = hwy::HWY_NAMESPACE;
  if constexpr (std::is_same_v<From, Half> && HWY_TARGET > HWY_AVX2) {
    // Without F16C, Highway's conversion takes infinity for a number.
    HWY_ALIGN float wide[hn::MaxLanes(d)];
    std::copy_n(from, hn::Lanes(d), wide);
    return hn::Load(d, wide);
  } else if constexpr (kIsHalf<From>) {
    return widened(
        d, hn::LoadU(hn::Rebind<std::uint16_t, D>(), reinterpret_cast<const std::uint16_t*>(from)),
        from);
  } else {
    return hn::LoadU(d, from);
  }
}

// The first `count`, and zeros. Reads no others.
template <class D, typename From>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> load_first(D d, const From* from, std::int64_t count) {
  namespace hn = hwy::HWY_NAMESPACE;
  // What a mask excludes is left alone.
  constexpr bool kLoadsParts = HWY_TARGET <= (sizeof(From) < 4 ? HWY_AVX3 : HWY_AVX2);
  const std::int64_t kept =
      std::clamp<std::int64_t>(count, 0, static_cast<std::int64_t>(hn::Lanes(d)));
  if constexpr (kLoadsParts && kIsHalf<From>) {
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

// The upper halves have the bits of bf16, rounded as half.h rounds.
template <class D, class V>
HWY_INLINE auto upper_bits(D, V value) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToUnsigned<D> u32;
  const auto bits = hn::BitCast(u32, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u32, 1U));
  const auto sum = hn::Add(hn::Add(bits, hn::Set(u32, 0x7fffU)), odd);
  return hn::IfThenElse(hn::RebindMask(u32, hn::IsNaN(value)), hn::Set(u32, 0x7fc00000U), sum);
}

// The bits of 16-bit floats, rounded as half.h rounds.
template <class D, class V>
HWY_INLINE auto narrowed(D d, V value, const BFloat16*) {
  namespace hn = hwy::HWY_NAMESPACE;
  const auto bits = hn::ShiftRight<16>(upper_bits(d, value));
  return hn::TruncateTo(hn::Rebind<std::uint16_t, D>(), bits);
}
// Of a NaN only the sign is kept.
template <class D, class V>
HWY_INLINE auto narrowed(D d, V value, const Half*) {
  namespace hn = hwy::HWY_NAMESPACE;
  const auto nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  const auto known = hn::IfThenElse(hn::IsNaN(value), hn::CopySign(nan, value), value);
  return hn::BitCast(hn::Rebind<std::uint16_t, D>(),
                     hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), known));
}

// The first `count` of a vector's elements; writes no others.
template <class D, class V, typename To>
HWY_INLINE void store_first(D d, V value, To* to, std::int64_t count) {
  namespace hn = hwy::HWY_NAMESPACE;
  const std::int64_t kept = std::min(count, static_cast<std::int64_t>(hn::Lanes(d)));
  if constexpr (std::is_same_v<To, Half> && HWY_TARGET > HWY_AVX2) {
    HWY_ALIGN float wide[hn::MaxLanes(d)];
    hn::Store(value, d, wide);
    std::copy_n(wide, kept, to);
  } else if constexpr (kIsHalf<To>) {
    const hn::Rebind<std::uint16_t, D> bits;
    const auto made = narrowed(d, value, to);
    HWY_ALIGN std::uint16_t some[hn::MaxLanes(d)];
    if (kept == static_cast<std::int64_t>(hn::Lanes(d)))
      return hn::StoreU(made, bits, reinterpret_cast<std::uint16_t*>(to));
    hn::Store(made, bits, some);
    std::copy_n(some, kept, reinterpret_cast<std::uint16_t*>(to));
  } else {
    HWY_ALIGN To some[hn::MaxLanes(d)];
    if (kept == static_cast<std::int64_t>(hn::Lanes(d))) return hn::StoreU(value, d, to);
    hn::Store(value, d, some);
    std::copy_n(some, kept, to);
  }
}

}  // namespace
}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
