#include "tenon/tensor/strided_rows.h"

#include "tenon/tensor/vector_sets.h"

namespace tenon::detail {
namespace {

struct TwoWords {
  std::uint64_t words[2];
};

template <int kStep, typename T>
[[gnu::always_inline]] inline void copy(T* to, const T* from, std::int64_t count) {
  if constexpr (kStep == 0) {
    const T item = *from;
    for (std::int64_t i = 0; i < count; ++i) to[i] = item;
  } else {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i * kStep];
  }
}

template <int kStep>
[[gnu::always_inline]] inline void copy(void* to, const void* from, std::int64_t item,
                                        std::int64_t count) {
  switch (item) {
#define TENON_CASE(bytes, T) \
  case bytes:                \
    return copy<kStep>(static_cast<T*>(to), static_cast<const T*>(from), count);
    TENON_CASE(1, std::uint8_t)
    TENON_CASE(2, std::uint16_t)
    TENON_CASE(4, std::uint32_t)
    TENON_CASE(8, std::uint64_t)
    TENON_CASE(16, TwoWords)
#undef TENON_CASE
  }
}

#if defined(__x86_64__)
template <int kStep>
__attribute__((target("avx2"))) void copy_avx2(void* to, const void* from, std::int64_t item,
                                               std::int64_t count) {
  copy<kStep>(to, from, item, count);
}
template <int kStep>
__attribute__((target(TENON_AVX512))) void copy_avx512(void* to, const void* from,
                                                       std::int64_t item, std::int64_t count) {
  copy<kStep>(to, from, item, count);
}
#endif

template <int kStep>
void copy_best(void* to, const void* from, std::int64_t item, std::int64_t count) {
#if defined(__x86_64__)
  if (has_avx512()) return copy_avx512<kStep>(to, from, item, count);
  if (has_avx2()) return copy_avx2<kStep>(to, from, item, count);
#endif
  copy<kStep>(to, from, item, count);
}

}  // namespace

void copy_every_other(void* to, const void* from, std::int64_t item, std::int64_t count) {
  copy_best<2>(to, from, item, count);
}

void repeat_item(void* to, const void* from, std::int64_t item, std::int64_t count) {
  copy_best<0>(to, from, item, count);
}

}  // namespace tenon::detail
