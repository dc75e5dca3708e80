#include "tenon/tensor/half_rows.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <type_traits>

#include "tenon/tensor/vector_sets.h"

namespace tenon::detail {
namespace {

using Bits = std::uint32_t;

// The conversions of half.h without branches, which the compiler can vectorise: all cases are
// computed, then one is chosen.
[[gnu::always_inline]] inline float widened(BFloat16 value) {
  return std::bit_cast<float>(Bits{value.bits} << 16);
}
[[gnu::always_inline]] inline float widened(Half value) {
  const Bits sign = (value.bits & Bits{0x8000}) << 16;
  const Bits magnitude = value.bits & Bits{0x7fff};
  const float tiny = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1.0p-24f;
  const Bits subnormal = std::bit_cast<Bits>(tiny);
  const Bits normal = (magnitude << 13) + 0x38000000u;
  const Bits special = 0x7f800000u | ((magnitude & 0x3ffu) << 13);
  const Bits usual = magnitude < 0x400u ? subnormal : normal;
  return std::bit_cast<float>(sign | (magnitude >= 0x7c00u ? special : usual));
}
[[gnu::always_inline]] inline Bits narrowed(BFloat16, float value) {
  const Bits bits = std::bit_cast<Bits>(value);
  const Bits rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded;
}
[[gnu::always_inline]] inline Bits narrowed(Half, float value) {
  const Bits bits = std::bit_cast<Bits>(value);
  const Bits magnitude = bits & 0x7fffffffu;
  const float shifted = std::bit_cast<float>(std::min(magnitude, Bits{0x38800000u})) + 0.5f;
  const Bits subnormal = std::bit_cast<Bits>(shifted) - 0x3f000000u;
  const Bits normal = (magnitude + 0xc8000fffu + ((magnitude >> 13) & 1u)) >> 13;
  const Bits usual = magnitude < 0x38800000u ? subnormal : normal;
  const Bits finite = magnitude >= 0x477ff000u ? 0x7c00u : usual;
  return ((bits >> 16) & 0x8000u) | (magnitude > 0x7f800000u ? 0x7e00u : finite);
}

template <typename T>
[[gnu::always_inline]] inline void widen(float* to, const T* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = widened(from[i]);
}
template <typename T>
[[gnu::always_inline]] inline void narrow(T* to, const float* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = T::from_bits(static_cast<std::uint16_t>(narrowed(T(), from[i])));
}

#if defined(__x86_64__)
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  static const bool has = has_avx2() && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  return has;
}

__attribute__((target("avx2"))) void widen_avx2(float* to, const BFloat16* from,
                                                std::int64_t count) {
  widen(to, from, count);
}
__attribute__((target("avx2"))) void narrow_avx2(BFloat16* to, const float* from,
                                                 std::int64_t count) {
  narrow(to, from, count);
}
// The processor's own conversions, except of NaN, whose digits half.h treats in its own way: four
// vectors at a time, then one, and what is left with what is done already, as far as a vector needs
// that.
#define TENON_LANES __attribute__((target("avx2,f16c"), always_inline)) inline
TENON_LANES bool has_nan(const __m256 (&x)[1]) {
  return _mm256_movemask_ps(_mm256_cmp_ps(x[0], x[0], _CMP_UNORD_Q)) != 0;
}
TENON_LANES bool has_nan(const __m256 (&x)[4]) {
  return _mm256_movemask_ps(_mm256_or_ps(_mm256_cmp_ps(x[0], x[1], _CMP_UNORD_Q),
                                         _mm256_cmp_ps(x[2], x[3], _CMP_UNORD_Q))) != 0;
}
template <int kVectors>
TENON_LANES void widen_vectors(float* to, const Half* from) {
  __m256 x[kVectors];
  for (int v = 0; v < kVectors; ++v)
    x[v] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 8 * v)));
  if (has_nan(x)) return widen(to, from, 8 * kVectors);
  for (int v = 0; v < kVectors; ++v) _mm256_storeu_ps(to + 8 * v, x[v]);
}
template <int kVectors>
TENON_LANES void narrow_vectors(Half* to, const float* from) {
  __m256 x[kVectors];
  for (int v = 0; v < kVectors; ++v) x[v] = _mm256_loadu_ps(from + 8 * v);
  if (has_nan(x)) return narrow(to, from, 8 * kVectors);
  for (int v = 0; v < kVectors; ++v)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 8 * v),
                     _mm256_cvtps_ph(x[v], _MM_FROUND_TO_NEAREST_INT));
}
#undef TENON_LANES
__attribute__((target("avx2,f16c"))) void widen_f16c(float* to, const Half* from,
                                                     std::int64_t count) {
  if (count < 8) return widen(to, from, count);
  std::int64_t i = 0;
  for (; i + 32 <= count; i += 32) widen_vectors<4>(to + i, from + i);
  for (; i < count; i += 8) {
    const std::int64_t at = std::min(i, count - 8);
    widen_vectors<1>(to + at, from + at);
  }
}
__attribute__((target("avx2,f16c"))) void narrow_f16c(Half* to, const float* from,
                                                      std::int64_t count) {
  if (count < 8) return narrow(to, from, count);
  std::int64_t i = 0;
  for (; i + 32 <= count; i += 32) narrow_vectors<4>(to + i, from + i);
  for (; i < count; i += 8) {
    const std::int64_t at = std::min(i, count - 8);
    narrow_vectors<1>(to + at, from + at);
  }
}

// Sixteen elements a vector, two vectors at a time, the rest under masks. Every form has a mask,
// since the compiler warns of the others.
constexpr __mmask16 kAllLanes = 0xffff;
#define TENON_LANES __attribute__((target(TENON_AVX512), always_inline)) inline

TENON_LANES __m512 widened_lanes(BFloat16, __m256i bits) {
  return _mm512_castsi512_ps(
      _mm512_maskz_slli_epi32(kAllLanes, _mm512_maskz_cvtepu16_epi32(kAllLanes, bits), 16));
}
TENON_LANES __m512 widened_lanes(Half, __m256i bits) {
  return _mm512_maskz_cvtph_ps(kAllLanes, bits);
}
TENON_LANES __m256i narrowed_lanes(BFloat16, __m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd =
      _mm512_and_si512(_mm512_maskz_srli_epi32(kAllLanes, bits, 16), _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7fff));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i rounded = _mm512_maskz_srli_epi32(kAllLanes, sum, 16);
  return _mm512_maskz_cvtepi32_epi16(
      kAllLanes, _mm512_mask_mov_epi32(rounded, is_nan, _mm512_set1_epi32(0x7fc0)));
}
TENON_LANES __m256i narrowed_lanes(Half, __m512 x) {
  return _mm512_maskz_cvtps_ph(kAllLanes, x, _MM_FROUND_TO_NEAREST_INT);
}
TENON_LANES __mmask16 first_lanes(std::int64_t count) {
  return count >= 16 ? kAllLanes : static_cast<__mmask16>((1U << count) - 1);
}
// Whether either has a NaN of f16, whose digits half.h treats in its own way.
template <typename T>
TENON_LANES bool are_special(__m512 x, __m512 y) {
  return std::is_same_v<T, Half> && _mm512_cmp_ps_mask(x, y, _CMP_UNORD_Q) != 0;
}

template <typename T>
__attribute__((target(TENON_AVX512))) void widen_avx512(float* to, const T* from,
                                                        std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const auto* bits = reinterpret_cast<const __m256i*>(from + i);
    const __m512 x = widened_lanes(T(), _mm256_loadu_si256(bits));
    const __m512 y = widened_lanes(T(), _mm256_loadu_si256(bits + 1));
    if (are_special<T>(x, y)) {
      widen(to + i, from + i, 32);
      continue;
    }
    _mm512_storeu_ps(to + i, x);
    _mm512_storeu_ps(to + i + 16, y);
  }
  for (; i < count; i += 16) {
    const __mmask16 lanes = first_lanes(count - i);
    const __m512 x = widened_lanes(T(), _mm256_maskz_loadu_epi16(lanes, from + i));
    are_special<T>(x, x) ? widen(to + i, from + i, std::min<std::int64_t>(16, count - i))
                     : _mm512_mask_storeu_ps(to + i, lanes, x);
  }
}
template <typename T>
__attribute__((target(TENON_AVX512))) void narrow_avx512(T* to, const float* from,
                                                         std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m512 x = _mm512_loadu_ps(from + i), y = _mm512_loadu_ps(from + i + 16);
    if (are_special<T>(x, y)) {
      narrow(to + i, from + i, 32);
      continue;
    }
    auto* const bits = reinterpret_cast<__m256i*>(to + i);
    _mm256_storeu_si256(bits, narrowed_lanes(T(), x));
    _mm256_storeu_si256(bits + 1, narrowed_lanes(T(), y));
  }
  for (; i < count; i += 16) {
    const __mmask16 lanes = first_lanes(count - i);
    const __m512 x = _mm512_maskz_loadu_ps(lanes, from + i);
    are_special<T>(x, x) ? narrow(to + i, from + i, std::min<std::int64_t>(16, count - i))
                     : _mm256_mask_storeu_epi16(to + i, lanes, narrowed_lanes(T(), x));
  }
}
#undef TENON_LANES
#endif

}  // namespace

#if defined(__x86_64__)
void convert_dense(float* to, const BFloat16* from, std::int64_t count) {
  if (has_avx512()) return widen_avx512(to, from, count);
  has_avx2() ? widen_avx2(to, from, count) : widen(to, from, count);
}
void convert_dense(BFloat16* to, const float* from, std::int64_t count) {
  if (has_avx512()) return narrow_avx512(to, from, count);
  has_avx2() ? narrow_avx2(to, from, count) : narrow(to, from, count);
}
void convert_dense(float* to, const Half* from, std::int64_t count) {
  if (has_avx512()) return widen_avx512(to, from, count);
  has_f16c() ? widen_f16c(to, from, count) : widen(to, from, count);
}
void convert_dense(Half* to, const float* from, std::int64_t count) {
  if (has_avx512()) return narrow_avx512(to, from, count);
  has_f16c() ? narrow_f16c(to, from, count) : narrow(to, from, count);
}
#else
void convert_dense(float* to, const BFloat16* from, std::int64_t count) { widen(to, from, count); }
void convert_dense(BFloat16* to, const float* from, std::int64_t count) { narrow(to, from, count); }
void convert_dense(float* to, const Half* from, std::int64_t count) { widen(to, from, count); }
void convert_dense(Half* to, const float* from, std::int64_t count) { narrow(to, from, count); }
#endif

}  // namespace tenon::detail
