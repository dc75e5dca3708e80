#include "tenon/ops/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tenon/base/parallel.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/training_rows.h"
#include "tenon/ops/pool_windows.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::ops {
namespace {

// Without padding, f32: whole rows at a time. Undefined where that does not fit.
Tensor max_pool_rows(const Tensor& a, const PoolOptions& o, std::int64_t height,
                     std::int64_t width) {
  if (a.dtype() != DType::kF32 || a.device() != Device{} || a.dim() < 3 || a.dim() > 4 ||
      o.padding.height != 0 || o.padding.width != 0 || height <= 0 || width <= 0)
    return {};
  DimVector sizes = a.sizes().to_vector();
  sizes[sizes.size() - 2] = height;
  sizes[sizes.size() - 1] = width;
  const Tensor out = empty(sizes);
  const Tensor dense = contiguous(a);
  if (out.numel() == 0) return out;
  const std::int64_t in_height = a.size(-2), in_width = a.size(-1);
  const std::int64_t down = o.stride.height == 0 ? o.kernel.height : o.stride.height;
  const std::int64_t right = o.stride.width == 0 ? o.kernel.width : o.stride.width;
  const auto run = cpu::training_rows().max_pool;
  const auto* from = dense.const_data_ptr<float>();
  auto* to = out.data_ptr<float>();
  parallel_for(0, out.numel() / width, std::max<std::int64_t>(1, 8192 / width),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row) {
                   const float* plane = from + row / height * in_height * in_width;
                   run(to + row * width, plane + row % height * down * in_width, width,
                       o.kernel.height, in_width, o.kernel.width, right);
                 }
               });
  return out;
}

// planes(place, spans) -> one element for each place of each plane.
template <typename SpanOf, typename Reduce>
Tensor pool(const char* what, vulkan::WindowWork work, const Tensor& a, std::int64_t height,
            std::int64_t width, SpanOf&& span_of, Reduce&& reduce) {
  const Device device = device_to_offer(what, {&a});
  if (a.dim() != 3 && a.dim() != 4)
    throw InvalidArgument(
        fmt::format("{}: shape {}; take [N, C, H, W]", what, to_string(a.sizes())));
  if (!is_floating(a.dtype()))
    throw InvalidArgument(
        fmt::format("{}: of {}; convert it to floating point first", what, dtype_name(a.dtype())));
  if (height <= 0 || width <= 0)
    throw InvalidArgument(fmt::format("{}: the kernel is larger than the padded input {}", what,
                                      to_string(a.sizes())));
  DimVector sizes = a.sizes().to_vector();
  sizes[sizes.size() - 2] = height;
  sizes[sizes.size() - 1] = width;
  const DType compute = compute_dtype(a.dtype());
  const Tensor out = empty(sizes, compute, device);
  const Tensor dense = contiguous(to(a, compute));
  if (out.is_meta() || out.numel() == 0) return to(out, a.dtype());
  if (vulkan::holds(a)) {
    if (vulkan::windows(work, out, dense, span_of.on_device(a.sizes(), sizes),
                        out.numel() / (height * width)))
      return to(out, a.dtype());
    note_fallback(what, device);
  }
  const std::int64_t in_height = a.size(-2), in_width = a.size(-1);
  const auto run = [&]<typename T>() {
    parallel_for(0, out.numel() / width, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const PoolSpan y = span_of(row % height, in_height, true);
        const T* plane = dense.const_data_ptr<T>() + row / height * in_height * in_width;
        for (std::int64_t x = 0; x < width; ++x)
          out.data_ptr<T>()[row * width + x] =
              reduce(plane, in_width, y, span_of(x, in_width, false));
      }
    });
  };
  compute == DType::kF64 ? run.template operator()<double>() : run.template operator()<float>();
  return to(out, a.dtype());
}

auto average(bool count_padding) {
  return [=]<typename T>(const T* plane, std::int64_t width, const PoolSpan& y, const PoolSpan& x) {
    T sum = 0;
    for (std::int64_t i = y.begin; i < y.end; ++i)
      for (std::int64_t j = x.begin; j < x.end; ++j) sum += plane[i * width + j];
    const std::int64_t count =
        count_padding ? y.nominal * x.nominal : (y.end - y.begin) * (x.end - x.begin);
    return sum / static_cast<T>(count);
  };
}

void check_planes(const char* what, const Tensor& a) {
  if (a.dim() < 2)
    throw InvalidArgument(
        fmt::format("{}: shape {}; take [N, C, H, W]", what, to_string(a.sizes())));
}

}  // namespace

Tensor detail::max_pool2d(const Tensor& a, const PoolOptions& o) {
  check_planes("max_pool2d", a);
  const SlidingWindows sliding("max_pool2d", o);
  const std::int64_t height = sliding.places(a.size(-2), true);
  const std::int64_t out_width = sliding.places(a.size(-1), false);
  if (const Tensor out = max_pool_rows(a, o, height, out_width); out.defined()) return out;
  return pool(
      "max_pool2d", vulkan::WindowWork::kMaximum, a, height, out_width, sliding,
      []<typename T>(const T* plane, std::int64_t width, const PoolSpan& y, const PoolSpan& x) {
        T largest = -std::numeric_limits<T>::infinity();
        for (std::int64_t i = y.begin; i < y.end; ++i)
          for (std::int64_t j = x.begin; j < x.end; ++j) {
            const T value = plane[i * width + j];
            if (value > largest || value != value) largest = value;
          }
        return largest;
      });
}

Tensor detail::avg_pool2d(const Tensor& a, const PoolOptions& o) {
  check_planes("avg_pool2d", a);
  const SlidingWindows sliding("avg_pool2d", o);
  return pool("avg_pool2d", vulkan::WindowWork::kAverage, a, sliding.places(a.size(-2), true),
              sliding.places(a.size(-1), false), sliding, average(o.count_padding));
}

Tensor detail::adaptive_avg_pool2d(const Tensor& a, const Pair& size) {
  check_planes("adaptive_avg_pool2d", a);
  if (size.height <= 0 || size.width <= 0)
    throw InvalidArgument(fmt::format("adaptive_avg_pool2d: a size of {} x {}; each is 1 or more",
                                      size.height, size.width));
  return pool("adaptive_avg_pool2d", vulkan::WindowWork::kAverage, a, size.height, size.width,
              AdaptiveWindows(size), average(false));
}

}  // namespace tenon::ops
