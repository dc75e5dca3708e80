#include "tenon/tensor/half_rows.h"

#include <algorithm>
#include <bit>

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
template <typename T>
__attribute__((target("avx2"))) void widen_avx2(float* to, const T* from, std::int64_t count) {
  widen(to, from, count);
}
template <typename T>
__attribute__((target("avx2"))) void narrow_avx2(T* to, const float* from, std::int64_t count) {
  narrow(to, from, count);
}
bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}
#else
template <typename T>
void widen_avx2(float* to, const T* from, std::int64_t count) {
  widen(to, from, count);
}
template <typename T>
void narrow_avx2(T* to, const float* from, std::int64_t count) {
  narrow(to, from, count);
}
constexpr bool has_avx2() { return false; }
#endif

}  // namespace

void convert_dense(float* to, const BFloat16* from, std::int64_t count) {
  has_avx2() ? widen_avx2(to, from, count) : widen(to, from, count);
}
void convert_dense(BFloat16* to, const float* from, std::int64_t count) {
  has_avx2() ? narrow_avx2(to, from, count) : narrow(to, from, count);
}
void convert_dense(float* to, const Half* from, std::int64_t count) {
  has_avx2() ? widen_avx2(to, from, count) : widen(to, from, count);
}
void convert_dense(Half* to, const float* from, std::int64_t count) {
  has_avx2() ? narrow_avx2(to, from, count) : narrow(to, from, count);
}

}  // namespace tenon::detail
