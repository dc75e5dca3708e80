// Loops over dense 16-bit floats that compute in f32 without a pass of its own for either
// conversion. Included once for each instruction set, so without a plain include guard.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "tenon/ops/kernels/cpu/wide_load-inl.h"
#include "tenon/tensor/half.h"

#if defined(TENON_OPS_HALF_LOOP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_OPS_HALF_LOOP_INL_H
#undef TENON_OPS_HALF_LOOP_INL_H
#else
#define TENON_OPS_HALF_LOOP_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

// Elsewhere the blocks are converted, computed in f32 and converted again.
inline constexpr bool kHasHalfLoops = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2;

// Two vectors of f32 out of one of bf16, which has them in turns: without a shuffle.
template <class D>
HWY_INLINE void widen(D d, const BFloat16* from, float* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToUnsigned<D> u32;
  const auto both = hn::BitCast(u32, hn::LoadU(hn::Repartition<std::uint16_t, D>(), &from->bits));
  hn::Store(hn::BitCast(d, hn::ShiftLeft<16>(both)), d, to);
  hn::Store(hn::BitCast(d, hn::And(both, hn::Set(u32, 0xffff0000U))), d, to + hn::MaxLanes(d));
}
// The same of f16, one after the other.
template <class D>
HWY_INLINE void widen(D d, const Half* from, float* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr std::size_t kLanes = hn::MaxLanes(d);
  for (std::size_t i = 0; i < 2 * kLanes; i += kLanes)
    hn::Store(load(d, from + i), d, to + i);
}

// Back, rounded as half.h rounds.
template <class D>
HWY_INLINE void narrow(D d, const float* from, BFloat16* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Repartition<std::uint16_t, D> u16;
  const auto even = hn::ShiftRight<16>(upper_bits(d, hn::Load(d, from)));
  const auto odd = upper_bits(d, hn::Load(d, from + hn::MaxLanes(d)));
  hn::StoreU(hn::OddEven(hn::BitCast(u16, odd), hn::BitCast(u16, even)), u16, &to->bits);
}
template <class D>
HWY_INLINE void narrow(D d, const float* from, Half* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr std::size_t kLanes = hn::MaxLanes(d);
  for (std::size_t i = 0; i < 2 * kLanes; i += kLanes)
    hn::StoreU(narrowed(d, hn::Load(d, from + i), to), hn::Rebind<std::uint16_t, D>(),
               &to[i].bits);
}

// Fewer elements than a chunk has. Zeros take the place of others.
template <std::size_t kChunk, typename T>
HWY_INLINE void take_some(T* chunk, const T* from, std::size_t count) {
#if HWY_TARGET == HWY_AVX3
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<std::uint16_t> d;
  static_assert(kChunk == hn::MaxLanes(d));
  hn::StoreU(hn::MaskedLoad(hn::FirstN(d, count), d, &from->bits), d, &chunk->bits);
#else
  std::memset(static_cast<void*>(chunk), 0, kChunk * sizeof(T));
  std::memcpy(static_cast<void*>(chunk), from, count * sizeof(T));
#endif
}
template <typename T>
HWY_INLINE void give_some(T* to, const T* chunk, std::size_t count) {
#if HWY_TARGET == HWY_AVX3
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<std::uint16_t> d;
  hn::BlendedStore(hn::LoadU(d, &chunk->bits), hn::FirstN(d, count), d, &to->bits);
#else
  std::memcpy(static_cast<void*>(to), chunk, count * sizeof(T));
#endif
}

// out[i] = f of the inputs' elements i, as f32. f takes an array for each input and a place in
// them. The compiler makes vectors of the loop over f, which it takes apart before where it has no
// more than 16 steps. What is left behind the last chunk goes in a chunk that begins before it.
// That is computed first, since the output may be an input, and stored last.
template <typename T, std::size_t kInputs, typename F>
HWY_INLINE void each_half(T* out, const void* const* in, std::int64_t count, const F& f) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  constexpr std::size_t kPair = 2 * hn::MaxLanes(d), kChunk = std::max<std::size_t>(kPair, 32);
  const auto length = static_cast<std::size_t>(count);
  const bool is_short = length < kChunk;
  const std::size_t rests = length % kChunk != 0 ? 1 : 0;
  HWY_ALIGN std::uint16_t held[kInputs + 1][kChunk];  // not of T, which would be set to zero
  T* const last = reinterpret_cast<T*>(held[kInputs]);
  for (std::size_t c = 0; c < length / kChunk + rests; ++c) {
    const bool is_rest = c < rests;
    const std::size_t at = is_rest ? length - kChunk : (c - rests) * kChunk;
    HWY_ALIGN float x[kInputs][kChunk], result[kChunk];
    for (std::size_t i = 0; i < kInputs; ++i) {
      const T* from = static_cast<const T*>(in[i]);
      if (HWY_UNLIKELY(is_short)) {
        T* const chunk = reinterpret_cast<T*>(held[i]);
        take_some<kChunk>(chunk, from, length);
        from = chunk;
      } else {
        from += at;
      }
      for (std::size_t j = 0; j < kChunk; j += kPair) widen(d, from + j, x[i] + j);
    }
    for (std::size_t j = 0; j < kChunk; ++j) result[j] = f(x, j);
    T* const to = is_rest ? last : out + at;
    for (std::size_t j = 0; j < kChunk; j += kPair) narrow(d, result + j, to + j);
  }
  if (is_short)
    give_some(out, last, length);
  else if (rests != 0)
    std::memcpy(static_cast<void*>(out + length - kChunk), last, kChunk * sizeof(T));
}

}  // namespace
}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
