#include "tenon/ops/pool.h"

#include <fmt/format.h>

#include <vector>

#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/pool_planes.h"
#include "tenon/ops/pool_windows.h"
#include "tenon/ops/reduce.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::ops {
namespace {

template <typename Windows>
void by_channels(const Tensor& out, const Tensor& a, bool is_average, const Windows& windows) {
  const auto run = [&]<typename T>() {
    const cpu::ChannelPoolKernels<T>& kernels = cpu::channel_pool_kernels<T>();
    const T* in = a.const_data_ptr<T>();
    T* found = out.data_ptr<T>();
    for_each_channel_window(a.sizes(), out.sizes(), windows, false,
                            [&](const cpu::ChannelWindow& window, std::int64_t from,
                                std::int64_t to, std::int64_t count) {
                              if (is_average)
                                kernels.average(found + to, in + from, window,
                                                static_cast<double>(count));
                              else
                                kernels.largest(found + to, in + from, window);
                            });
  };
  switch (out.dtype()) {
    case DType::kF64:
      return run.template operator()<double>();
    case DType::kBF16:
      return run.template operator()<BFloat16>();
    case DType::kF16:
      return run.template operator()<Half>();
    default:
      return run.template operator()<float>();
  }
}

template <typename Windows>
void by_planes(const Tensor& out, const Tensor& a, bool is_average, const Windows& windows) {
  cpu::PoolWork work{is_average, out.dtype(), a.size(-2), a.size(-1), {}, {}};
  const auto spans = [&](std::int64_t places, std::int64_t size, bool of_height) {
    std::vector<cpu::PoolWork::Span> all;
    for (std::int64_t i = 0; i < places; ++i) {
      const PoolSpan span = windows(i, size, of_height);
      all.push_back({span.begin, span.end, windows.count(span)});
    }
    return all;
  };
  work.rows = spans(out.size(-2), work.height, true);
  work.columns = spans(out.size(-1), work.width, false);
  cpu::pool_planes(work, out.data_ptr(), a.const_data_ptr(),
                   out.numel() / (out.size(-2) * out.size(-1)));
}

// One element for each place of each plane. Requires: check_planes.
template <typename Windows>
Tensor pool(const char* what, bool is_average, const Tensor& a, std::int64_t height,
            std::int64_t width, const Windows& windows) {
  const Device device = device_to_offer(what, {&a});
  if (height <= 0 || width <= 0)
    throw InvalidArgument(fmt::format("{}: the kernel is larger than the padded input {}", what,
                                      to_string(a.sizes())));
  DimVector sizes = a.sizes().to_vector();
  sizes[sizes.size() - 2] = height;
  sizes[sizes.size() - 1] = width;
  const MemoryFormat format = image_format(a);
  const bool is_last = format == MemoryFormat::kChannelsLast && !is_float8(a.dtype());
  const DType compute = is_last ? a.dtype() : compute_dtype(a.dtype());
  const Tensor out = empty(sizes, compute, device, format);
  const Tensor dense = contiguous(to(a, compute), format);
  if (out.is_meta() || out.numel() == 0) return to(out, a.dtype());
  HostTurn host;
  if (vulkan::holds(a)) {
    const auto work =
        is_average ? vulkan::WindowWork::kAverage : vulkan::WindowWork::kMaximum;
    if (vulkan::windows(work, out, dense, windows.on_device(a.sizes(), sizes),
                        out.numel() / (height * width)))
      return to(out, a.dtype());
    host.take(what, device);
  }
  if (format == MemoryFormat::kChannelsLast)
    by_channels(out, dense, is_average, windows);
  else
    by_planes(out, dense, is_average, windows);
  return to(out, a.dtype());
}

void check_planes(const char* what, const Tensor& a) {
  if (a.dim() != 3 && a.dim() != 4)
    throw InvalidArgument(
        fmt::format("{}: shape {}; take [N, C, H, W]", what, to_string(a.sizes())));
  if (!is_floating(a.dtype()))
    throw InvalidArgument(
        fmt::format("{}: of {}; convert it to floating point first", what, dtype_name(a.dtype())));
  if (a.size(-2) == 0 || a.size(-1) == 0)
    throw InvalidArgument(fmt::format("{}: the planes of shape {} have no elements", what,
                                      to_string(a.sizes())));
}

}  // namespace

Tensor detail::max_pool2d(const Tensor& a, const PoolOptions& o) {
  check_planes("max_pool2d", a);
  const SlidingWindows sliding("max_pool2d", o);
  return pool("max_pool2d", false, a, sliding.places(a.size(-2), true),
              sliding.places(a.size(-1), false), sliding);
}

Tensor detail::avg_pool2d(const Tensor& a, const PoolOptions& o) {
  check_planes("avg_pool2d", a);
  const SlidingWindows sliding("avg_pool2d", o);
  return pool("avg_pool2d", true, a, sliding.places(a.size(-2), true),
              sliding.places(a.size(-1), false), sliding);
}

Tensor detail::adaptive_avg_pool2d(const Tensor& a, const Pair& size) {
  check_planes("adaptive_avg_pool2d", a);
  if (size.height <= 0 || size.width <= 0)
    throw InvalidArgument(fmt::format("adaptive_avg_pool2d: a size of {} x {}; each is 1 or more",
                                      size.height, size.width));
  const bool is_one_place = size.height == 1 && size.width == 1;
  if (is_one_place && a.device() == Device{} && a.numel() > 0) return mean(a, {-2, -1}, true);
  const AdaptiveWindows windows(size);
  return pool("adaptive_avg_pool2d", true, a, size.height, size.width, windows);
}

}  // namespace tenon::ops
