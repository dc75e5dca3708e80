// Plain loops, compiled once for each instruction set and vectorised by the compiler.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/channel_rows.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

#include "tenon/ops/kernels/cpu/channel_rows.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

// Adds first(row, c) and second(row, c) up. Four rows at a time, so that sums are loaded and stored
// once for them.
template <typename T, typename First, typename Second>
void add_rows(std::int64_t rows, std::int64_t channels, T* sums, T* others, First&& first,
              Second&& second) {
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4)
#pragma GCC ivdep
    for (std::int64_t c = 0; c < channels; ++c) {
      const T a = first(r, c), b = first(r + 1, c), d = first(r + 2, c), e = first(r + 3, c);
      sums[c] += (a + b) + (d + e);
      others[c] += (second(r, c, a) + second(r + 1, c, b)) +
                   (second(r + 2, c, d) + second(r + 3, c, e));
    }
  for (; r < rows; ++r)
#pragma GCC ivdep
    for (std::int64_t c = 0; c < channels; ++c) {
      const T a = first(r, c);
      sums[c] += a;
      others[c] += second(r, c, a);
    }
}

template <typename T>
void row_moments(const T* x, const T* shift, std::int64_t rows, std::int64_t channels, T* sums,
                 T* squares) {
  add_rows(
      rows, channels, sums, squares,
      [=](std::int64_t r, std::int64_t c) { return x[r * channels + c] - shift[c]; },
      [](std::int64_t, std::int64_t, T moved) { return moved * moved; });
}

template <typename T>
void row_products(const T* g, const T* x, const T* mean, std::int64_t rows, std::int64_t channels,
                  T* sums, T* products) {
  add_rows(
      rows, channels, sums, products,
      [=](std::int64_t r, std::int64_t c) { return g[r * channels + c]; },
      [=](std::int64_t r, std::int64_t c, T gradient) {
        return gradient * (x[r * channels + c] - mean[c]);
      });
}

template <typename T>
void row_scale(T* out, const T* x, const T* factor, const T* shift, std::int64_t rows,
               std::int64_t channels) {
  for (std::int64_t r = 0; r < rows; ++r)
#pragma GCC ivdep
    for (std::int64_t c = 0; c < channels; ++c)
      out[r * channels + c] = x[r * channels + c] * factor[c] + shift[c];
}

template <typename T>
void row_combine(T* out, const T* g, const T* x, const T* of_g, const T* mean, const T* of_x,
                 const T* rest, std::int64_t rows, std::int64_t channels) {
  for (std::int64_t r = 0; r < rows; ++r)
#pragma GCC ivdep
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t i = r * channels + c;
      out[i] = g[i] * of_g[c] + ((x[i] - mean[c]) * of_x[c] + rest[c]);
    }
}

template <typename T>
constexpr cpu::ChannelRowKernels<T> kRowKernels = {&row_moments<T>, &row_scale<T>,
                                                   &row_products<T>, &row_combine<T>};

}  // namespace

const cpu::ChannelRowKernels<float>& row_kernels_f32() { return kRowKernels<float>; }
const cpu::ChannelRowKernels<double>& row_kernels_f64() { return kRowKernels<double>; }

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(row_kernels_f32);
HWY_EXPORT(row_kernels_f64);

template <>
const cpu::ChannelRowKernels<float>& cpu::channel_row_kernels() {
  return HWY_DYNAMIC_DISPATCH(row_kernels_f32)();
}
template <>
const cpu::ChannelRowKernels<double>& cpu::channel_row_kernels() {
  return HWY_DYNAMIC_DISPATCH(row_kernels_f64)();
}

}  // namespace tenon::ops
#endif
