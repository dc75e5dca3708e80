// Which elements a pooling operator's places look at.
#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/image_format.h"
#include "tenon/ops/kernels/cpu/channel_windows.h"
#include "tenon/ops/kernels/vulkan/device_kernels.h"
#include "tenon/ops/pool.h"

namespace tenon::ops {

// Which elements of one dimension a place looks at; `nominal` counts padding, too.
struct PoolSpan {
  std::int64_t begin, end, nominal;
};

// Kernels at a stride over padded elements.
class SlidingWindows {
 public:
  // Throws InvalidArgument for options that make no sense.
  SlidingWindows(const char* what, const PoolOptions& o) : o_(o) {
    if (o_.stride.height == 0) o_.stride.height = o.kernel.height;
    if (o_.stride.width == 0) o_.stride.width = o.kernel.width;
    const auto fits = [](std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
      constexpr std::int64_t kMost = std::int64_t{1} << 31;  // sums of three do not overflow
      return kernel >= 1 && kernel <= kMost && stride >= 1 && stride <= kMost && padding >= 0 &&
             padding <= kernel / 2;
    };
    if (!fits(o_.kernel.height, o_.stride.height, o_.padding.height) ||
        !fits(o_.kernel.width, o_.stride.width, o_.padding.width))
      throw InvalidArgument(fmt::format(
          "{}: a kernel of {}x{}, stride {}x{}, padding {}x{}: sizes are 1 to 2^31 and the padding "
          "is at most half the kernel",
          what, o_.kernel.height, o_.kernel.width, o_.stride.height, o_.stride.width,
          o_.padding.height, o_.padding.width));
  }

  std::int64_t places(std::int64_t size, bool of_height) const {
    const std::int64_t kernel = of_height ? o_.kernel.height : o_.kernel.width;
    const std::int64_t padding = of_height ? o_.padding.height : o_.padding.width;
    const std::int64_t reach = size + 2 * padding - kernel;
    return reach < 0 ? 0 : reach / (of_height ? o_.stride.height : o_.stride.width) + 1;
  }

  // The same for a device, of planes and places of these sizes.
  vulkan::Windows on_device(IntList planes, IntList places) const {
    const std::size_t n = planes.size();
    vulkan::Windows w{planes[n - 2], planes[n - 1], places[n - 2], places[n - 1]};
    w.kernel = o_.kernel;
    w.stride = o_.stride;
    w.padding = o_.padding;
    w.counts_padding = o_.count_padding;
    return w;
  }

  // How many elements of a span an average counts.
  std::int64_t count(const PoolSpan& span) const {
    return o_.count_padding ? span.nominal : span.end - span.begin;
  }

  PoolSpan operator()(std::int64_t place, std::int64_t size, bool of_height) const {
    const std::int64_t kernel = of_height ? o_.kernel.height : o_.kernel.width;
    const std::int64_t padding = of_height ? o_.padding.height : o_.padding.width;
    const std::int64_t begin = place * (of_height ? o_.stride.height : o_.stride.width) - padding;
    // Padding counts up to its own end, not what a kernel looks at beyond it.
    const std::int64_t nominal = std::min(begin + kernel, size + padding) - begin;
    return {std::max<std::int64_t>(begin, 0), std::min(begin + kernel, size), nominal};
  }

 private:
  PoolOptions o_;
};

// As many places as asked for, over all elements.
class AdaptiveWindows {
 public:
  explicit AdaptiveWindows(const Pair& size) : size_(size) {}

  vulkan::Windows on_device(IntList planes, IntList places) const {
    const std::size_t n = planes.size();
    vulkan::Windows w{planes[n - 2], planes[n - 1], places[n - 2], places[n - 1]};
    w.is_adaptive = true;
    return w;
  }

  std::int64_t count(const PoolSpan& span) const { return span.nominal; }

  PoolSpan operator()(std::int64_t place, std::int64_t elements, bool of_height) const {
    const std::int64_t places = of_height ? size_.height : size_.width;
    const std::int64_t begin = place * elements / places;
    const std::int64_t end = ((place + 1) * elements + places - 1) / places;
    return {begin, end, end - begin};
  }

 private:
  Pair size_;
};

// body(window, from, to, count) for each place of channels-last tensors: where the window starts in
// the planes, where its channels are in the places, and how many elements an average is of. Windows
// of one image run on one thread, in order, if they `are_written`, since they overlap.
template <typename Windows, typename Body>
void for_each_channel_window(IntList planes, IntList places, const Windows& windows,
                             bool are_written, Body&& body) {
  const std::int64_t channels = planes[1], height = places[2], width = places[3];
  const std::int64_t pitch = planes[3] * channels, rows = are_written ? height : 1;
  // What is read for a row of places, or written.
  const std::int64_t row_work =
      channels * std::max(width, planes[2] * planes[3] / std::max<std::int64_t>(1, height));
  const std::int64_t tasks = places[0] * height / std::max<std::int64_t>(1, rows);
  parallel_for(0, tasks, even_grain(tasks, 16384 / std::max<std::int64_t>(1, rows * row_work)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin * rows; row < end * rows; ++row) {
                   const PoolSpan y = windows(row % height, planes[2], true);
                   const std::int64_t first = row / height * planes[2] + y.begin;
                   for (std::int64_t place = 0; place < width; ++place) {
                     const PoolSpan x = windows(place, planes[3], false);
                     body(cpu::ChannelWindow{y.end - y.begin, x.end - x.begin, channels, pitch},
                          first * pitch + x.begin * channels, (row * width + place) * channels,
                          windows.count(y) * windows.count(x));
                   }
                 }
               });
}

}  // namespace tenon::ops
