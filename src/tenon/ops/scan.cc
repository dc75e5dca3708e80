#include "tenon/ops/scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "tenon/base/parallel.h"
#include "tenon/ops/dense_lines.h"
#include "tenon/ops/kernels/vulkan/device_kernels.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/half_rows.h"
#include "tenon/tensor/kernels/vulkan/elements.h"
#include "tenon/tensor/vector_sets.h"

namespace tenon::ops {
namespace {

// As wide as needed to lose nothing on the way.
template <typename T>
using Wide =
    std::conditional_t<std::is_same_v<T, Complex64> || std::is_same_v<T, Complex128>, Complex128,
                       std::conditional_t<std::is_same_v<T, std::int64_t>, std::uint64_t, double>>;

template <typename T>
T narrowed(Wide<T> held) {
  if constexpr (std::is_same_v<T, std::int64_t>)
    return static_cast<T>(held);
  else
    return convert_element<T>(held);
}

// 16-bit floats pass through blocks of f32, which vectors convert.
constexpr std::int64_t kBlock = 1024;  // elements

// Along N rows at once: each step waits for the one before it, of its own row only. `held` has the
// sums so far, unless the rows begin here.
template <int N, typename T, typename Step>
void scan_rows(T* out, const T* from, std::int64_t row_elements, std::int64_t length,
               Wide<T>* held, bool begins, Step& step) {
  for (int row = 0; begins && row < N; ++row) {
    held[row] = Wide<T>(from[row * row_elements]);
    out[row * row_elements] = from[row * row_elements];
  }
  for (std::int64_t i = begins ? 1 : 0; i < length; ++i)
    for (int row = 0; row < N; ++row) {
      held[row] = step(held[row], Wide<T>(from[row * row_elements + i]));
      out[row * row_elements + i] = narrowed<T>(held[row]);
    }
}
// Rows that are longer than a block go piece by piece.
template <int N, typename T, typename Step>
void run_long_rows(T* out, const T* from, std::int64_t length, Step& step) {
  constexpr std::int64_t kPiece = kBlock / N;
  Wide<T> held[N] = {};
  alignas(64) float block[kBlock];
  for (std::int64_t at = 0; at < length; at += kPiece) {
    const std::int64_t some = std::min(kPiece, length - at);
    for (int row = 0; row < N; ++row)
      tenon::detail::convert_dense(block + row * kPiece, from + row * length + at, some);
    scan_rows<N>(block, block, kPiece, some, held, at == 0, step);
    for (int row = 0; row < N; ++row)
      tenon::detail::convert_dense(out + row * length + at, block + row * kPiece, some);
  }
}

template <int N, typename T, typename Step>
void run_some_rows(T* out, const T* from, std::int64_t length, Step& step) {
  if constexpr (kIsHalf<T>) {
    run_long_rows<N>(out, from, length, step);
  } else {
    Wide<T> held[N] = {};
    scan_rows<N>(out, from, length, length, held, true, step);
  }
}

template <typename T, typename Step>
void run_rows(T* out, const T* from, std::int64_t rows, std::int64_t length, Step& step) {
  if constexpr (kIsHalf<T>)
    if (length <= kBlock) {
      alignas(64) float block[kBlock];
      const std::int64_t together = kBlock / length;
      for (std::int64_t row = 0; row < rows; row += together) {
        const std::int64_t some = std::min(together, rows - row);
        tenon::detail::convert_dense(block, from + row * length, some * length);
        run_rows(block, block, some, length, step);
        tenon::detail::convert_dense(out + row * length, block, some * length);
      }
      return;
    }
  std::int64_t row = 0;
  const auto take = [&]<int N>() {
    for (; row + N <= rows; row += N)
      run_some_rows<N>(out + row * length, from + row * length, length, step);
  };
  take.template operator()<4>();
  take.template operator()<2>();
  take.template operator()<1>();
}

// How many rows a thread takes at a time: as many as go side by side, if that leaves enough.
std::int64_t row_grain(std::int64_t rows, std::int64_t length) {
  const std::int64_t together = rows >= 8 ? 4 : rows >= 4 ? 2 : 1;
  const std::int64_t worth = std::max<std::int64_t>(1, 16384 / length);
  return (worth + together - 1) / together * together;
}

// Rows of `count` columns go into the sums down them one after the other. The results may be the
// rows.
template <typename R, typename T>
struct Rows {
  R* results;
  const T* from;
  std::int64_t rows, row_elements;
};
template <typename R, typename T, typename W, typename Step>
[[gnu::always_inline]] inline void take_rows(Rows<R, T> all, W* held, std::int64_t count,
                                             Step& step) {
  for (std::int64_t r = 0; r < all.rows; ++r) {
    R* const results = all.results + r * all.row_elements;
    const T* const from = all.from + r * all.row_elements;
#pragma GCC ivdep
    for (std::int64_t c = 0; c < count; ++c) {
      held[c] = step(held[c], W(from[c]));
      results[c] = narrowed<R>(held[c]);
    }
  }
}
#if defined(__x86_64__)
template <typename R, typename T, typename W, typename Step>
__attribute__((target("avx2"))) void take_rows_avx2(Rows<R, T> all, W* held, std::int64_t count,
                                                    Step& step) {
  take_rows(all, held, count, step);
}
template <typename R, typename T, typename W, typename Step>
__attribute__((target(TENON_AVX512))) void take_rows_avx512(Rows<R, T> all, W* held,
                                                            std::int64_t count, Step& step) {
  take_rows(all, held, count, step);
}
#endif
template <typename R, typename T, typename W, typename Step>
void take_rows_in_vectors(Rows<R, T> all, W* held, std::int64_t count, Step& step) {
#if defined(__x86_64__)
  if (tenon::detail::has_avx512()) return take_rows_avx512(all, held, count, step);
  if (tenon::detail::has_avx2()) return take_rows_avx2(all, held, count, step);
#endif
  take_rows(all, held, count, step);
}

// Down up to DenseLines::kWidest columns side by side.
template <typename T, typename Step>
void run_columns(T* out, const T* from, const DenseLines& lines, std::int64_t count, Step& step) {
  alignas(64) Wide<T> held[DenseLines::kWidest];
  std::copy_n(from, count, out);
  for (std::int64_t c = 0; c < count; ++c) held[c] = Wide<T>(from[c]);
  const std::int64_t inner = lines.inner;
  if constexpr (kIsHalf<T>) {
    // Rows without a gap between them go together.
    const std::int64_t together = count == inner ? kBlock / count : 1;
    for (std::int64_t row = 1; row < lines.length; row += together) {
      const std::int64_t rows = std::min(together, lines.length - row);
      alignas(64) float wide[kBlock];
      tenon::detail::convert_dense(wide, from + row * inner, rows * count);
      take_rows_in_vectors(Rows<float, float>{wide, wide, rows, count}, held, count, step);
      tenon::detail::convert_dense(out + row * inner, wide, rows * count);
    }
  } else {
    const Rows<T, T> rest{out + inner, from + inner, lines.length - 1, inner};
    take_rows_in_vectors(rest, held, count, step);
  }
}

template <typename Step>
Tensor running(const char* what, vulkan::Rows kind, const Tensor& a, std::int64_t dim,
               Step&& step) {
  device_to_offer(what, {&a});
  const std::int64_t d = wrap_dim(dim, a.dim(), what);
  const DType result = is_floating(a.dtype()) || is_complex(a.dtype()) ? a.dtype() : DType::kI64;
  const Tensor input = dense(to(a, result));
  const Tensor out = empty_like(input);
  if (out.is_meta() || out.numel() == 0) return out;
  const DenseLines lines(input, d);
  HostTurn host;
  if (vulkan::holds(input)) {
    if (vulkan::rows(kind, out, lines.length, lines.inner, input)) return out;
    host.take(what, out.device());
  }
  visit_dtype(result, [&]<typename T>() {
    const T* from = input.const_data_ptr<T>();
    T* target = out.data_ptr<T>();
    if (lines.inner != 1)
      return lines.for_each(sizeof(T), [&](std::int64_t first, std::int64_t count) {
        run_columns(target + first, from + first, lines, count, step);
      });
    const std::int64_t grain = row_grain(lines.outer, lines.length);
    parallel_for(0, lines.outer, grain, [&](std::int64_t row, std::int64_t end) {
      run_rows(target + row * lines.length, from + row * lines.length, end - row, lines.length,
               step);
    });
  });
  return out;
}

}  // namespace

Tensor detail::cumsum(const Tensor& a, std::int64_t dim) {
  return running("cumsum", vulkan::Rows::kCumsum, a, dim, [](auto x, auto y) { return x + y; });
}

Tensor detail::cumprod(const Tensor& a, std::int64_t dim) {
  return running("cumprod", vulkan::Rows::kCumprod, a, dim, [](auto x, auto y) { return x * y; });
}

}  // namespace tenon::ops
