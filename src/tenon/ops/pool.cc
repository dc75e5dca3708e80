#include "tenon/ops/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "tenon/base/parallel.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/training_rows.h"
#include "tenon/ops/pool_windows.h"
#include "tenon/ops/reduce.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::ops {
namespace {

// f32 by 2 x 2 without padding: no copy of the planes. False where that does not fit.
bool max_pool_2x2(const Tensor& out, const Tensor& a, const cpu::WindowWork& w) {
  const auto is = [](const Pair& pair, std::int64_t number) {
    return pair.height == number && pair.width == number;
  };
  if (out.dtype() != DType::kF32 || !is(w.kernel, 2) || !is(w.stride, 2) || !is(w.padding, 0))
    return false;
  const auto run = cpu::training_rows().max_pool_2x2;
  const auto* from = a.const_data_ptr<float>();
  auto* to = out.data_ptr<float>();
  parallel_for(0, out.numel() / w.out_width, std::max<std::int64_t>(1, 8192 / w.out_width),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row) {
                   const std::int64_t plane = row / w.out_height, y = row % w.out_height * 2;
                   run(to + row * w.out_width, from + (plane * w.height + y) * w.width,
                       w.out_width, w.width);
                 }
               });
  return true;
}

// Sums as averages. Windows of one height have the same divisors in every row.
template <typename T>
void divide(const Tensor& sums, const SlidingWindows& sliding, std::int64_t in_height,
            std::int64_t in_width) {
  const std::int64_t height = sums.size(-2), width = sums.size(-1);
  T* const data = sums.data_ptr<T>();
  parallel_for(0, sums.numel() / width, std::max<std::int64_t>(1, 16384 / width),
               [&](std::int64_t begin, std::int64_t end) {
                 std::vector<T> divisors(static_cast<std::size_t>(width));
                 std::int64_t known = 0;  // of whose first column
                 for (std::int64_t row = begin; row < end; ++row) {
                   const PoolSpan y = sliding(row % height, in_height, true);
                   const std::int64_t first = sliding.count(y, sliding(0, in_width, false));
                   for (std::int64_t x = 0; known != first && x < width; ++x)
                     divisors[static_cast<std::size_t>(x)] =
                         static_cast<T>(sliding.count(y, sliding(x, in_width, false)));
                   known = first;
                   T* const to = data + row * width;
                   for (std::int64_t x = 0; x < width; ++x)
                     to[x] /= divisors[static_cast<std::size_t>(x)];
                 }
               });
}

// False: the windows have to be looked at one by one.
bool by_windows(const Tensor& out, const Tensor& a, bool is_average,
                const SlidingWindows& sliding) {
  using Kind = cpu::WindowWork::Kind;
  const cpu::WindowWork work = sliding.on_host(is_average ? Kind::kSum : Kind::kLargest,
                                               out.dtype(), a.sizes(), out.sizes());
  if (!is_average && max_pool_2x2(out, a, work)) return true;
  const std::int64_t planes = out.numel() / (work.out_height * work.out_width);
  if (!cpu::walk_windows(work, out.data_ptr(), a.const_data_ptr(), planes, 1, 1, nullptr, nullptr))
    return false;
  if (is_average)
    out.dtype() == DType::kF64 ? divide<double>(out, sliding, work.height, work.width)
                               : divide<float>(out, sliding, work.height, work.width);
  return true;
}

template <typename Windows>
void by_channels(const Tensor& out, const Tensor& a, bool is_average, const Windows& windows) {
  const auto run = [&]<typename T>() {
    const cpu::ChannelWindowKernels<T>& kernels = cpu::channel_window_kernels<T>();
    const T* in = a.const_data_ptr<T>();
    T* found = out.data_ptr<T>();
    for_each_channel_window(a.sizes(), out.sizes(), windows, false,
                            [&](const cpu::ChannelWindow& window, std::int64_t from,
                                std::int64_t to, std::int64_t count) {
                              if (is_average)
                                kernels.average(found + to, in + from, window,
                                                static_cast<T>(count));
                              else
                                kernels.largest(found + to, in + from, window);
                            });
  };
  out.dtype() == DType::kF64 ? run.template operator()<double>() : run.template operator()<float>();
}

// One element for each place of each plane: reduce(plane, its width, rows, columns). Requires:
// check_planes.
template <typename SpanOf, typename Reduce>
Tensor pool(const char* what, vulkan::WindowWork work, const Tensor& a, std::int64_t height,
            std::int64_t width, SpanOf&& span_of, Reduce&& reduce) {
  const Device device = device_to_offer(what, {&a});
  if (height <= 0 || width <= 0)
    throw InvalidArgument(fmt::format("{}: the kernel is larger than the padded input {}", what,
                                      to_string(a.sizes())));
  DimVector sizes = a.sizes().to_vector();
  sizes[sizes.size() - 2] = height;
  sizes[sizes.size() - 1] = width;
  const DType compute = compute_dtype(a.dtype());
  const MemoryFormat format = pool_format(a);
  const Tensor out = empty(sizes, compute, device, format);
  const Tensor dense = contiguous(to(a, compute), format);
  if (out.is_meta() || out.numel() == 0) return to(out, a.dtype());
  HostTurn host;
  if (vulkan::holds(a)) {
    if (vulkan::windows(work, out, dense, span_of.on_device(a.sizes(), sizes),
                        out.numel() / (height * width)))
      return to(out, a.dtype());
    host.take(what, device);
  }
  if (format == MemoryFormat::kChannelsLast) {
    by_channels(out, dense, work == vulkan::WindowWork::kAverage, span_of);
    return to(out, a.dtype());
  }
  if constexpr (std::is_same_v<SpanOf, const SlidingWindows&>)
    if (by_windows(out, dense, work == vulkan::WindowWork::kAverage, span_of))
      return to(out, a.dtype());
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

template <typename Windows>
auto average(const Windows& windows) {
  return [=]<typename T>(const T* plane, std::int64_t width, const PoolSpan& y, const PoolSpan& x) {
    T sum = 0;
    for (std::int64_t i = y.begin; i < y.end; ++i)
      for (std::int64_t j = x.begin; j < x.end; ++j) sum += plane[i * width + j];
    return sum / static_cast<T>(windows.count(y, x));
  };
}

void check_planes(const char* what, const Tensor& a) {
  if (a.dim() != 3 && a.dim() != 4)
    throw InvalidArgument(
        fmt::format("{}: shape {}; take [N, C, H, W]", what, to_string(a.sizes())));
  if (!is_floating(a.dtype()))
    throw InvalidArgument(
        fmt::format("{}: of {}; convert it to floating point first", what, dtype_name(a.dtype())));
}

}  // namespace

Tensor detail::max_pool2d(const Tensor& a, const PoolOptions& o) {
  check_planes("max_pool2d", a);
  const SlidingWindows sliding("max_pool2d", o);
  const std::int64_t height = sliding.places(a.size(-2), true);
  const std::int64_t out_width = sliding.places(a.size(-1), false);
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
              sliding.places(a.size(-1), false), sliding, average(sliding));
}

Tensor detail::adaptive_avg_pool2d(const Tensor& a, const Pair& size) {
  check_planes("adaptive_avg_pool2d", a);
  if (size.height <= 0 || size.width <= 0)
    throw InvalidArgument(fmt::format("adaptive_avg_pool2d: a size of {} x {}; each is 1 or more",
                                      size.height, size.width));
  const bool is_one_place = size.height == 1 && size.width == 1;
  if (is_one_place && a.device() == Device{} && a.numel() > 0) return mean(a, {-2, -1}, true);
  const AdaptiveWindows windows(size);
  return pool("adaptive_avg_pool2d", vulkan::WindowWork::kAverage, a, size.height, size.width,
              windows, average(windows));
}

}  // namespace tenon::ops
