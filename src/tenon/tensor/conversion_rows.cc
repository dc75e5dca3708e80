// Rows of one dtype out of rows of another.
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <limits>
#include <type_traits>

#include "tenon/tensor/copy.h"
#include "tenon/tensor/half_rows.h"
#include "tenon/tensor/strided_rows.h"
#include "tenon/tensor/vector_sets.h"

namespace tenon {
namespace {

// Whose conversions are instructions.
template <typename T>
constexpr bool kIsPlain = std::is_same_v<T, float> || std::is_same_v<T, double> ||
                          std::is_same_v<T, bool> || std::is_same_v<T, std::uint8_t> ||
                          (std::is_signed_v<T> && std::is_integral_v<T>);
template <typename To, typename From>
constexpr bool kHasVectors =
    (kIsPlain<To> || kIsHalf<To>)&&(kIsPlain<From> || kIsHalf<From>)&&!std::is_same_v<To, From>;

constexpr std::int64_t kBlock = 256;

template <typename To, typename From>
[[gnu::always_inline]] inline void convert_each(To* to, const From* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = convert_element<To>(from[i]);
}
template <typename To, typename From>
constexpr bool kIsByInt32 = std::is_floating_point_v<From> && std::is_integral_v<To> &&
                            sizeof(To) <= 4 && !std::is_same_v<To, bool>;
// Numbers to integers of up to 32 bits: by way of int32, which every vector converts to, where all
// of a stretch fit.
template <typename To, typename From>
[[gnu::always_inline]] inline void convert(To* to, const From* from, std::int64_t count) {
  if constexpr (kIsByInt32<To, From>) {
    constexpr From kLimit = static_cast<From>(2147483648.0);
    constexpr std::int64_t kStretch = 64;
    for (; count > 0; count -= kStretch, to += kStretch, from += kStretch) {
      const std::int64_t some = std::min(kStretch, count);
      std::int32_t beyond = 0;  // or NaN
      for (std::int64_t i = 0; i < some; ++i)
        beyond |= static_cast<int>(!(from[i] >= -kLimit)) | static_cast<int>(!(from[i] < kLimit));
      if (beyond != 0) {
        convert_each(to, from, some);
        continue;
      }
      for (std::int64_t i = 0; i < some; ++i)
        to[i] = static_cast<To>(static_cast<std::int32_t>(from[i]));
    }
  } else {
    convert_each(to, from, count);
  }
}

#if defined(__x86_64__)
#define TENON_LANES __attribute__((target("avx2"), always_inline)) inline

// Eight numbers towards zero; one beyond int32, or NaN, becomes its smallest.
TENON_LANES __m256i whole(const float* from) {
  return _mm256_cvttps_epi32(_mm256_loadu_ps(from));
}
TENON_LANES __m256i whole(const double* from) {
  const __m128i low = _mm256_cvttpd_epi32(_mm256_loadu_pd(from));
  return _mm256_set_m128i(_mm256_cvttpd_epi32(_mm256_loadu_pd(from + 4)), low);
}
// 32 integers, modulo 2^bits.
TENON_LANES void put(void* to, int at, __m256i x) {
  _mm256_storeu_si256(static_cast<__m256i*>(to) + at, x);
}
template <typename To>
TENON_LANES void store_whole(To* to, const __m256i* x) {
  if constexpr (sizeof(To) == 4) {
    for (int i = 0; i < 4; ++i) put(to, i, x[i]);
  } else if constexpr (sizeof(To) == 2) {
    const __m256i lower = _mm256_set1_epi32(0xffff);
    for (int i = 0; i < 4; i += 2) {
      const __m256i pair = _mm256_packus_epi32(_mm256_and_si256(x[i], lower),
                                               _mm256_and_si256(x[i + 1], lower));
      put(to, i / 2, _mm256_permute4x64_epi64(pair, 0xd8));
    }
  } else {
    const __m256i lower = _mm256_set1_epi32(0xff);
    const auto pair = [&](int i) __attribute__((target("avx2"), always_inline)) {
      return _mm256_packus_epi32(_mm256_and_si256(x[i], lower), _mm256_and_si256(x[i + 1], lower));
    };
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    put(to, 0, _mm256_permutevar8x32_epi32(_mm256_packus_epi16(pair(0), pair(2)), order));
  }
}
#undef TENON_LANES

// As convert, 32 at a time.
template <typename To, typename From>
__attribute__((target("avx2"))) void convert_by_int32(To* to, const From* from,
                                                      std::int64_t count) {
  constexpr std::int64_t kStretch = 32;
  const __m256i smallest = _mm256_set1_epi32(std::numeric_limits<std::int32_t>::min());
  for (; count > 0; count -= kStretch, to += kStretch, from += kStretch) {
    const std::int64_t some = std::min(kStretch, count);
    From last[kStretch];
    const bool is_short = some < kStretch;
    if (is_short) std::fill(std::copy_n(from, some, last), last + kStretch, From(0));
    const From* const all = is_short ? last : from;
    __m256i x[4], beyond = _mm256_setzero_si256();
    for (int i = 0; i < 4; ++i) {
      x[i] = whole(all + 8 * i);
      beyond = _mm256_or_si256(beyond, _mm256_cmpeq_epi32(x[i], smallest));
    }
    if (_mm256_testz_si256(beyond, beyond) == 0) {
      convert_each(to, from, some);
    } else if (is_short) {
      To results[kStretch];
      store_whole(results, x);
      std::copy_n(results, some, to);
    } else {
      store_whole(to, x);
    }
  }
}
template <typename To, typename From>
__attribute__((target("avx2"))) void convert_avx2(To* to, const From* from, std::int64_t count) {
  if constexpr (kIsByInt32<To, From>)
    convert_by_int32(to, from, count);
  else
    convert_each(to, from, count);
}
template <typename To, typename From>
__attribute__((target(TENON_AVX512))) void convert_avx512(To* to, const From* from,
                                                          std::int64_t count) {
  if constexpr (std::is_same_v<From, float>)
    convert(to, from, count);
  else
    convert_each(to, from, count);  // which has conversions of f64 to int64
}
#endif

template <typename To, typename From>
void convert_dense(To* to, const From* from, std::int64_t count) {
  if constexpr (std::is_same_v<From, bool>) {
    // As bytes, which are 0 and 1: GCC makes no vectors of most conversions from bool.
    convert_dense(to, reinterpret_cast<const std::uint8_t*>(from), count);
  } else if constexpr ((kIsHalf<To> && std::is_same_v<From, float>) ||
                (kIsHalf<From> && std::is_same_v<To, float>)) {
    detail::convert_dense(to, from, count);
  } else if constexpr (kHasVectors<To, From> && (kIsHalf<To> || kIsHalf<From>)) {
    // By way of f32, as a single element goes.
    constexpr std::int64_t kBetween = 1024;
    float between[kBetween];
    for (std::int64_t at = 0; at < count; at += kBetween) {
      const std::int64_t some = std::min(kBetween, count - at);
      convert_dense(between, from + at, some);
      convert_dense(to + at, between, some);
    }
  } else if constexpr (kHasVectors<To, From>) {
#if defined(__x86_64__)
    if (detail::has_avx512()) return convert_avx512(to, from, count);
    if (detail::has_avx2()) return convert_avx2(to, from, count);
#endif
    convert(to, from, count);
  } else {
    convert(to, from, count);
  }
}

// Dense elements of two dtypes.
using DenseFunction = void (*)(void* to, const void* from, std::int64_t count);
template <typename To, typename From>
[[gnu::noinline]] void dense_function(void* to, const void* from, std::int64_t count) {
  convert_dense(static_cast<To*>(to), static_cast<const From*>(from), count);
}

template <typename T>
void scatter(char* to, std::int64_t stride, const void* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    *reinterpret_cast<T*>(to + i * stride) = static_cast<const T*>(from)[i];
}

// Strided elements of so many bytes by way of dense blocks.
void convert_by_blocks(DenseFunction convert, std::int64_t to_item, std::int64_t from_item,
                       char** data, const std::int64_t* strides, std::int64_t length) {
  alignas(64) char to[kBlock * 8], from[kBlock * 8];
  for (std::int64_t at = 0; at < length; at += kBlock) {
    const std::int64_t count = std::min(kBlock, length - at);
    const char* source = data[1] + at * strides[1];
    if (strides[1] != from_item) {
      detail::copy_steps(from, source, static_cast<std::size_t>(from_item), strides[1] / from_item,
                         count);
      source = from;
    }
    char* const target = data[0] + at * strides[0];
    const bool is_dense = strides[0] == to_item;
    convert(is_dense ? target : to, source, count);
    if (is_dense) continue;
    if (to_item == 1) scatter<std::uint8_t>(target, strides[0], to, count);
    if (to_item == 2) scatter<std::uint16_t>(target, strides[0], to, count);
    if (to_item == 4) scatter<std::uint32_t>(target, strides[0], to, count);
    if (to_item == 8) scatter<std::uint64_t>(target, strides[0], to, count);
  }
}

template <typename To, typename From>
void convert_row(char** data, const std::int64_t* strides, std::int64_t length) {
  const std::int64_t to_step = strides[0], from_step = strides[1];
  if (to_step == sizeof(To) && from_step == sizeof(From)) {
    if constexpr (std::is_same_v<To, From>) {
      std::copy_n(reinterpret_cast<const From*>(data[1]), length, reinterpret_cast<To*>(data[0]));
      return;
    }
    return dense_function<To, From>(data[0], data[1], length);
  }
  if constexpr (std::is_same_v<To, From>)
    if (to_step == sizeof(To))
      return detail::copy_steps(data[0], data[1], sizeof(To),
                                from_step / static_cast<std::int64_t>(sizeof(From)), length);
  if constexpr (kHasVectors<To, From>)
    if (length >= 16)
      return convert_by_blocks(&dense_function<To, From>, sizeof(To), sizeof(From), data, strides,
                               length);
  char* const target = data[0];
  const char* const source = data[1];
#pragma GCC unroll 1
  for (std::int64_t i = 0; i < length; ++i)
    *reinterpret_cast<To*>(target + i * to_step) =
        convert_element<To>(*reinterpret_cast<const From*>(source + i * from_step));
}

}  // namespace

detail::RowFunction detail::conversion_row(DType to, DType from) {
  return visit_any_dtype(to, [&]<typename To>() {
    return visit_any_dtype(from,
                           []<typename From>() -> RowFunction { return convert_row<To, From>; });
  });
}

void detail::convert_elements(DType to_dtype, void* to, DType from_dtype, const void* from,
                              std::int64_t count) {
  char* pair[2] = {static_cast<char*>(to), static_cast<char*>(const_cast<void*>(from))};
  const std::int64_t steps[2] = {static_cast<std::int64_t>(item_size(to_dtype)),
                                 static_cast<std::int64_t>(item_size(from_dtype))};
  conversion_row(to_dtype, from_dtype)(pair, steps, count);
}

}  // namespace tenon
