#include "tenon/ops/scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <type_traits>

#include "tenon/base/parallel.h"
#include "tenon/ops/dense_lines.h"
#include "tenon/ops/kernels/vulkan/device_kernels.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

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

// Along N rows at once: each step waits for the one before it, of its own row only.
template <int N, typename T, typename Step>
void run_rows(T* out, const T* from, std::int64_t length, Step& step) {
  Wide<T> held[N];
  for (int row = 0; row < N; ++row) {
    held[row] = Wide<T>(from[row * length]);
    out[row * length] = from[row * length];
  }
  for (std::int64_t i = 1; i < length; ++i) {
    for (int row = 0; row < N; ++row) {
      held[row] = step(held[row], Wide<T>(from[row * length + i]));
      out[row * length + i] = narrowed<T>(held[row]);
    }
  }
}

// Down up to DenseLines::kWidest columns side by side.
template <typename T, typename Step>
void run_columns(T* out, const T* from, const DenseLines& lines, std::int64_t count, Step& step) {
  std::array<Wide<T>, DenseLines::kWidest> held;
  for (std::int64_t c = 0; c < count; ++c) {
    held[static_cast<std::size_t>(c)] = Wide<T>(from[c]);
    out[c] = from[c];
  }
  for (std::int64_t row = 1; row < lines.length; ++row) {
    from += lines.inner;
    out += lines.inner;
    for (std::int64_t c = 0; c < count; ++c) {
      Wide<T>& sum = held[static_cast<std::size_t>(c)];
      sum = step(sum, Wide<T>(from[c]));
      out[c] = narrowed<T>(sum);
    }
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
    const std::int64_t grain = std::max<std::int64_t>(1, 16384 / lines.length);
    parallel_for(0, lines.outer, grain, [&](std::int64_t row, std::int64_t end) {
      constexpr int kTogether = 4;
      for (; row + kTogether <= end; row += kTogether)
        run_rows<kTogether>(target + row * lines.length, from + row * lines.length, lines.length,
                            step);
      for (; row < end; ++row)
        run_rows<1>(target + row * lines.length, from + row * lines.length, lines.length, step);
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
