#include "tenon/tensor/strided_rows.h"

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "tenon/tensor/copy_bytes.h"
#include "tenon/tensor/vector_sets.h"

namespace tenon::detail {
namespace {

struct [[gnu::packed]] TwoWords {
  std::uint64_t words[2];
};

// An item may be several elements, whose alignment is less than its size.
template <typename T>
struct Loose {
  using Item [[gnu::aligned(1)]] = T;
};

// A step that is known makes shuffles of vectors; kAny is the one that is given.
constexpr int kAny = 1 << 30;

template <int kStep, typename T>
[[gnu::always_inline]] inline void copy(T* to, const T* from, std::int64_t step,
                                        std::int64_t count) {
  typename Loose<T>::Item* const target = to;
  const typename Loose<T>::Item* const source = from;
  if constexpr (kStep == 0) {
    const T item = *source;
    for (std::int64_t i = 0; i < count; ++i) target[i] = item;
  } else {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i)
      target[i] = source[i * (kStep == kAny ? step : kStep)];
  }
}

// Calls body with the step as a constant, where it is one that makes shuffles.
template <class Body>
[[gnu::always_inline]] inline void with_step(std::int64_t step, const Body& body) {
  switch (step) {
    case -1:
      return body(std::integral_constant<int, -1>());
    case 0:
      return body(std::integral_constant<int, 0>());
    case 2:
      return body(std::integral_constant<int, 2>());
    case 3:
      return body(std::integral_constant<int, 3>());
    case 4:
      return body(std::integral_constant<int, 4>());
    default:
      return body(std::integral_constant<int, kAny>());
  }
}

// Rows of so few items that a loop over them would take as long as they do.
template <int kCount, typename T>
[[gnu::always_inline]] inline void copy_few(char* to, std::int64_t to_stride, const char* from,
                                            std::int64_t from_stride, std::int64_t step,
                                            std::int64_t rows) {
  using Item = typename Loose<T>::Item;
  for (std::int64_t r = 0; r < rows; ++r, to += to_stride, from += from_stride) {
    T items[kCount];
    for (int i = 0; i < kCount; ++i) items[i] = *reinterpret_cast<const Item*>(from + i * step);
    for (int i = 0; i < kCount; ++i) reinterpret_cast<Item*>(to)[i] = items[i];
  }
}

template <typename T>
[[gnu::always_inline]] inline void copy_rows_of(char* to, std::int64_t to_stride, const char* from,
                                                std::int64_t from_stride, std::int64_t step,
                                                std::int64_t count, std::int64_t rows) {
  if (count == 2) return copy_few<2, T>(to, to_stride, from, from_stride, step, rows);
  if (count == 3) return copy_few<3, T>(to, to_stride, from, from_stride, step, rows);
  if (count == 4) return copy_few<4, T>(to, to_stride, from, from_stride, step, rows);
  using Item = typename Loose<T>::Item;
  constexpr auto kItem = static_cast<std::int64_t>(sizeof(T));
  if (step % kItem != 0) {  // items that are several elements
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t i = 0; i < count; ++i)
        reinterpret_cast<Item*>(to + r * to_stride)[i] =
            *reinterpret_cast<const Item*>(from + r * from_stride + i * step);
    return;
  }
  with_step(step / kItem, [=](auto known) __attribute__((always_inline)) {
    for (std::int64_t r = 0; r < rows; ++r)
      copy<known>(reinterpret_cast<T*>(to + r * to_stride),
                  reinterpret_cast<const T*>(from + r * from_stride), step / kItem, count);
  });
}

template <int kColumns, typename T>
[[gnu::always_inline]] inline void merge(T* to, const char* const* from, std::int64_t count) {
  using Item = typename Loose<T>::Item;
  Item* const target = to;
  const Item* columns[kColumns];
  for (int c = 0; c < kColumns; ++c) columns[c] = reinterpret_cast<const Item*>(from[c]);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i)
    for (int c = 0; c < kColumns; ++c) target[i * kColumns + c] = columns[c][i];
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

template <typename T>
struct Lanes {
  static constexpr std::size_t kCount = 16 / sizeof(T);
  using Vector [[gnu::vector_size(16)]] = T;

  // a[kFirst], b[kFirst], a[kFirst + 1], b[kFirst + 1], ...
  template <std::size_t kFirst, std::size_t... I>
  static Vector merged(Vector a, Vector b, std::index_sequence<I...>) {
    return __builtin_shufflevector(a, b, (I % 2 * kCount + kFirst + I / 2)...);
  }
  template <std::size_t kFirst>
  static Vector merged(Vector a, Vector b) {
    return merged<kFirst>(a, b, std::make_index_sequence<kCount>());
  }
};

// As many rows as columns, each a vector: merging both halves of them log2(count) times.
template <typename T>
void transpose_square(char* to, std::int64_t to_stride, const char* from,
                      std::int64_t from_stride) {
  using L = Lanes<T>;
  constexpr auto kCount = static_cast<std::int64_t>(L::kCount);
  typename L::Vector x[L::kCount], y[L::kCount];
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < kCount; ++i) std::memcpy(&x[i], from + i * from_stride, 16);
#pragma GCC unroll 4
  for (std::int64_t done = 1; done < kCount; done *= 2) {
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < kCount / 2; ++i) {
      y[2 * i] = L::template merged<0>(x[i], x[i + kCount / 2]);
      y[2 * i + 1] = L::template merged<L::kCount / 2>(x[i], x[i + kCount / 2]);
    }
#pragma GCC unroll 16
    for (std::int64_t i = 0; i < kCount; ++i) x[i] = y[i];
  }
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < kCount; ++i) std::memcpy(to + i * to_stride, &x[i], 16);
}

template <typename T>
void transpose_items(char* to, std::int64_t to_stride, const char* from, std::int64_t from_stride,
                     std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kItem = sizeof(T);
  const auto plain = [=](std::int64_t row, std::int64_t row_end, std::int64_t column) {
    for (std::int64_t r = row; r < row_end; ++r)
      for (std::int64_t c = column; c < columns; ++c)
        std::memcpy(to + r * to_stride + c * kItem, from + c * from_stride + r * kItem, sizeof(T));
  };
  if constexpr (sizeof(T) == 16) {
    plain(0, rows, 0);
  } else {
    constexpr std::int64_t kSide = Lanes<T>::kCount;
    std::int64_t r = 0;
    for (; r + kSide <= rows; r += kSide) {
      std::int64_t c = 0;
      for (; c + kSide <= columns; c += kSide)
        transpose_square<T>(to + r * to_stride + c * kItem, to_stride,
                            from + c * from_stride + r * kItem, from_stride);
      plain(r, r + kSide, c);
    }
    plain(r, rows, 0);
  }
}

#define TENON_FORMS(suffix, attribute)                                                            \
  attribute void copy_##suffix(void* to, const void* from, std::int64_t item, std::int64_t step,  \
                               std::int64_t count) {                                              \
    with_items(item, [=]<typename T>(T*) __attribute__((always_inline)) {                         \
      with_step(step, [=](auto known) __attribute__((always_inline)) {                            \
        copy<known>(static_cast<T*>(to), static_cast<const T*>(from), step, count);               \
      });                                                                                         \
    });                                                                                           \
  }                                                                                               \
  attribute void rows_##suffix(char* to, std::int64_t to_stride, const char* from,                \
                               std::int64_t from_stride, std::int64_t item, std::int64_t step,    \
                               std::int64_t count, std::int64_t rows) {                           \
    with_items(item, [=]<typename T>(T*) __attribute__((always_inline)) {                         \
      copy_rows_of<T>(to, to_stride, from, from_stride, step, count, rows);                       \
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

void copy_rows(char* to, std::int64_t to_stride, const char* from, std::int64_t from_stride,
               std::int64_t item, std::int64_t step, std::int64_t count, std::int64_t rows) {
  if (step == item && count * item >= 4) {
    const auto bytes = static_cast<std::size_t>(count * item);
    for (std::int64_t r = 0; r < rows; ++r)
      copy_bytes(to + r * to_stride, from + r * from_stride, bytes);
    return;
  }
#if defined(__x86_64__)
  if (has_avx512()) return rows_avx512(to, to_stride, from, from_stride, item, step, count, rows);
  if (has_avx2()) return rows_avx2(to, to_stride, from, from_stride, item, step, count, rows);
#endif
  rows_plain(to, to_stride, from, from_stride, item, step, count, rows);
}

void interleave(void* to, const char* const* from, std::int64_t item, std::int64_t columns,
                std::int64_t count) {
#if defined(__x86_64__)
  if (has_avx512()) return merge_avx512(to, from, item, columns, count);
  if (has_avx2()) return merge_avx2(to, from, item, columns, count);
#endif
  merge_plain(to, from, item, columns, count);
}

void transpose(char* to, std::int64_t to_stride, const char* from, std::int64_t from_stride,
               std::int64_t item, std::int64_t rows, std::int64_t columns) {
  with_items(item, [=]<typename T>(T*) {
    transpose_items<T>(to, to_stride, from, from_stride, rows, columns);
  });
}

}  // namespace tenon::detail
