// Which of x86-64's vectors the machine has, for loops that are compiled once for each.
#pragma once

#if defined(__x86_64__)

namespace tenon::detail {

#if defined(__clang__)  // which has no such attribute, and prefers as its -mtune does
#define TENON_AVX512 "avx512f,avx512bw,avx512vl,avx512dq"
#else
#define TENON_AVX512 "avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512"
#endif

inline bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}
// All that TENON_AVX512 names.
inline bool has_avx512() {
  static const bool has = __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return has;
}

}  // namespace tenon::detail

#endif
