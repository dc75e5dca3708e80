#include "tenon/tensor/strided_rows.h"

#include "tenon/tensor/vector_sets.h"

namespace tenon::detail {
namespace {

struct TwoWords {
  std::uint64_t words[2];
};

// A step that is known makes shuffles of vectors; kAny is the one that is given.
constexpr int kAny = 1 << 30;

template <int kStep, typename T>
[[gnu::always_inline]] inline void copy(T* to, const T* from, std::int64_t step,
                                        std::int64_t count) {
  if constexpr (kStep == 0) {
    const T item = *from;
    for (std::int64_t i = 0; i < count; ++i) to[i] = item;
  } else {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i * (kStep == kAny ? step : kStep)];
  }
}

template <typename T>
[[gnu::always_inline]] inline void copy(T* to, const T* from, std::int64_t step,
                                        std::int64_t count) {
  switch (step) {
    case -1:
      return copy<-1>(to, from, step, count);
    case 0:
      return copy<0>(to, from, step, count);
    case 2:
      return copy<2>(to, from, step, count);
    case 3:
      return copy<3>(to, from, step, count);
    case 4:
      return copy<4>(to, from, step, count);
    default:
      return copy<kAny>(to, from, step, count);
  }
}

template <int kColumns, typename T>
[[gnu::always_inline]] inline void merge(T* to, const char* const* from, std::int64_t count) {
  const T* columns[kColumns];
  for (int c = 0; c < kColumns; ++c) columns[c] = reinterpret_cast<const T*>(from[c]);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i)
    for (int c = 0; c < kColumns; ++c) to[i * kColumns + c] = columns[c][i];
}

template <typename T>
[[gnu::always_inline]] inline void merge(T* to, const char* const* from, std::int64_t columns,
                                         std::int64_t count) {
  if (columns == 2) return merge<2>(to, from, count);
  columns == 3 ? merge<3>(to, from, count) : merge<4>(to, from, count);
}

// Calls body with a null pointer to items of so many bytes.
template <class Body>
[[gnu::always_inline]] inline void with_items(std::int64_t item, const Body& body) {
  switch (item) {
    case 1:
      return body(static_cast<std::uint8_t*>(nullptr));
    case 2:
      return body(static_cast<std::uint16_t*>(nullptr));
    case 4:
      return body(static_cast<std::uint32_t*>(nullptr));
    case 8:
      return body(static_cast<std::uint64_t*>(nullptr));
    default:
      return body(static_cast<TwoWords*>(nullptr));
  }
}

#define TENON_FORMS(suffix, attribute)                                                            \
  attribute void copy_##suffix(void* to, const void* from, std::int64_t item, std::int64_t step,  \
                               std::int64_t count) {                                              \
    with_items(item, [=]<typename T>(T*) __attribute__((always_inline)) {                         \
      copy(static_cast<T*>(to), static_cast<const T*>(from), step, count);                        \
    });                                                                                           \
  }                                                                                               \
  attribute void merge_##suffix(void* to, const char* const* from, std::int64_t item,             \
                                std::int64_t columns, std::int64_t count) {                       \
    with_items(item, [=]<typename T>(T*) __attribute__((always_inline)) {                         \
      merge(static_cast<T*>(to), from, columns, count);                                           \
    });                                                                                           \
  }
TENON_FORMS(plain, )
#if defined(__x86_64__)
TENON_FORMS(avx2, __attribute__((target("avx2"))))
TENON_FORMS(avx512, __attribute__((target(TENON_AVX512))))
#endif
#undef TENON_FORMS

}  // namespace

void copy_steps(void* to, const void* from, std::int64_t item, std::int64_t step,
                std::int64_t count) {
#if defined(__x86_64__)
  if (has_avx512()) return copy_avx512(to, from, item, step, count);
  if (has_avx2()) return copy_avx2(to, from, item, step, count);
#endif
  copy_plain(to, from, item, step, count);
}

void interleave(void* to, const char* const* from, std::int64_t item, std::int64_t columns,
                std::int64_t count) {
#if defined(__x86_64__)
  if (has_avx512()) return merge_avx512(to, from, item, columns, count);
  if (has_avx2()) return merge_avx2(to, from, item, columns, count);
#endif
  merge_plain(to, from, item, columns, count);
}

}  // namespace tenon::detail
