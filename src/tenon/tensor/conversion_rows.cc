// Rows of one dtype out of rows of another.
#include <algorithm>
#include <type_traits>

#include "tenon/tensor/copy.h"
#include "tenon/tensor/half_rows.h"
#include "tenon/tensor/strided_rows.h"
#include "tenon/tensor/vector_sets.h"

namespace tenon {
namespace {

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
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
[[gnu::always_inline]] inline void convert(To* to, const From* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = convert_element<To>(from[i]);
}

#if defined(__x86_64__)
template <typename To, typename From>
__attribute__((target("avx2"))) void convert_avx2(To* to, const From* from, std::int64_t count) {
  convert(to, from, count);
}
template <typename To, typename From>
__attribute__((target(TENON_AVX512))) void convert_avx512(To* to, const From* from,
                                                          std::int64_t count) {
  convert(to, from, count);
}
#endif

template <typename To, typename From>
void convert_dense(To* to, const From* from, std::int64_t count) {
  if constexpr ((kIsHalf<To> && std::is_same_v<From, float>) ||
                (kIsHalf<From> && std::is_same_v<To, float>)) {
    detail::convert_dense(to, from, count);
  } else if constexpr (kHasVectors<To, From> && (kIsHalf<To> || kIsHalf<From>)) {
    // By way of f32, as a single element goes.
    float between[kBlock];
    for (std::int64_t at = 0; at < count; at += kBlock) {
      const std::int64_t some = std::min(kBlock, count - at);
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

// Strided elements by way of dense blocks.
template <typename To, typename From>
void convert_by_blocks(char** data, const std::int64_t* strides, std::int64_t length) {
  To to[kBlock];
  From from[kBlock];
  const std::int64_t step = strides[1] / static_cast<std::int64_t>(sizeof(From));
  for (std::int64_t at = 0; at < length; at += kBlock) {
    const std::int64_t count = std::min(kBlock, length - at);
    const auto* source = reinterpret_cast<const From*>(data[1] + at * strides[1]);
    if (step != 1) {
      detail::copy_steps(from, source, sizeof(From), step, count);
      source = from;
    }
    char* const target = data[0] + at * strides[0];
    if (strides[0] == sizeof(To)) {
      convert_dense(reinterpret_cast<To*>(target), source, count);
      continue;
    }
    convert_dense(to, source, count);
    for (std::int64_t i = 0; i < count; ++i)
      *reinterpret_cast<To*>(target + i * strides[0]) = to[i];
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
    return convert_dense(reinterpret_cast<To*>(data[0]), reinterpret_cast<const From*>(data[1]),
                         length);
  }
  if constexpr (std::is_same_v<To, From>)
    if (to_step == sizeof(To))
      return detail::copy_steps(data[0], data[1], sizeof(To),
                                from_step / static_cast<std::int64_t>(sizeof(From)), length);
  if constexpr (kHasVectors<To, From>)
    if (length >= 16) return convert_by_blocks<To, From>(data, strides, length);
  char* const target = data[0];
  const char* const source = data[1];
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

}  // namespace tenon
