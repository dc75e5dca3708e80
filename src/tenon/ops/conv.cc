#include "tenon/ops/conv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tenon/ops/binary.h"
#include "tenon/ops/conv_device.h"
#include "tenon/ops/conv_host.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/image_format.h"
#include "tenon/ops/kernels/cpu/onednn_conv.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::ops {
namespace {

std::int64_t places(std::int64_t size, std::int64_t kernel, std::int64_t stride,
                    std::int64_t padding, std::int64_t dilation) {
  const std::int64_t reach = size + 2 * padding - dilation * (kernel - 1) - 1;
  return reach < 0 ? 0 : reach / stride + 1;
}

void check(const char* what, const Tensor& a, const Tensor& weight, const Tensor& bias,
           const ConvOptions& o, std::int64_t channels, std::int64_t out_channels) {
  const bool numbers = o.stride.height >= 1 && o.stride.width >= 1 && o.padding.height >= 0 &&
                       o.padding.width >= 0 && o.dilation.height >= 1 && o.dilation.width >= 1 &&
                       o.groups >= 1;
  constexpr std::int64_t kMost = INT32_MAX;  // so that no size overflows
  const std::int64_t largest = std::max({o.stride.height, o.stride.width, o.padding.height,
                                         o.padding.width, o.dilation.height, o.dilation.width});
  if (!numbers || largest > kMost)
    throw InvalidArgument(fmt::format("{}: stride {}x{}, padding {}x{}, dilation {}x{}, groups {}: "
                                      "paddings must be 0 or more, the others 1 or more, and all "
                                      "below 2^31",
                                      what, o.stride.height, o.stride.width, o.padding.height,
                                      o.padding.width, o.dilation.height, o.dilation.width,
                                      o.groups));
  const bool fits =
      is_floating(a.dtype()) && a.dtype() == weight.dtype() && a.size(1) == channels &&
      channels % o.groups == 0 && out_channels % o.groups == 0 && weight.size(2) > 0 &&
      weight.size(3) > 0 &&
      (!bias.defined() || (bias.numel() == out_channels && bias.dtype() == a.dtype()));
  if (!fits)
    throw InvalidArgument(fmt::format(
        "{}: an input of {} {}, a weight of {} {}{}, {} groups: the channels must agree, groups "
        "divide them, and the dtypes be one floating-point dtype",
        what, dtype_name(a.dtype()), to_string(a.sizes()), dtype_name(weight.dtype()),
        to_string(weight.sizes()),
        bias.defined() ? fmt::format(", a bias of {}", to_string(bias.sizes())) : "", o.groups));
}

void check_dims(const char* what, const Tensor& a, const Tensor& weight, std::int64_t dims) {
  if (a.dim() != dims || weight.dim() != dims)
    throw InvalidArgument(fmt::format("{}: shapes {} and {}; both must have {} dimensions", what,
                                      to_string(a.sizes()), to_string(weight.sizes()), dims));
}

vulkan::Windows on_device(const ConvWindow& w) {
  const ConvOptions& o = w.options;
  return {w.height, w.width,   w.out_height, w.out_width, {w.kernel_height, w.kernel_width},
          o.stride, o.padding, o.dilation};
}

constexpr MemoryFormat kLast = MemoryFormat::kChannelsLast;

// What no elements give.
void start_with(const Tensor& out, const Tensor& bias) {
  if (out.is_meta()) return;
  bias.defined() ? copy_(out, bias.view({1, -1, 1, 1})) : zero_(out);
}

bool is_by_channels(const ConvWindow& w) { return w.channels == 1 && w.options.groups > 1; }

// A kernel of 1 x 1 is a product as it is, or of the places that its strides reach. In f32 that is
// faster: of channels-last images, and where one in planes has more than a few places. Threads
// divide it better, too, where there is one image. Of channels-last images, so are a single filter,
// since oneDNN fills vectors with filters, and a few places, since it copies the weight.
bool is_product(DType dtype, std::int64_t images, std::int64_t filters, MemoryFormat format,
                const ConvWindow& w) {
  constexpr std::int64_t kFewColumns = 128, kFewPlaces = 64;
  if (w.options.groups > 1 || (dtype == DType::kBF16 && cpu::has_onednn_conv(dtype))) return false;
  const bool is_point = w.kernel_height == 1 && w.kernel_width == 1;
  if (format == kLast) return is_point || filters == 1 || images * w.columns() <= kFewPlaces;
  return is_point && (w.columns() >= kFewColumns || images == 1);
}

// oneDNN computes without columns in memory, but takes some ten microseconds to begin.
bool is_worth_onednn(IntList out, Device device, const ConvWindow& w) {
  const bool is_on_host = device.type == DeviceType::kCpu || device.type == DeviceType::kMeta;
  return is_on_host && !is_by_channels(w) && numel_of(out) * w.rows() > 1'000'000;
}

}  // namespace

Tensor detail::conv2d_weight_gradient(const Tensor& gradient, const Tensor& a, IntList sizes,
                                      const ConvOptions& o) {
  const DType compute = compute_dtype(a.dtype());
  const Tensor out = zeros(sizes, compute, a.device());
  if (out.numel() > 0 && gradient.numel() > 0 && a.numel() > 0) {
    const ConvWindow w{sizes[1], a.size(2), a.size(3),        sizes[2],
                   sizes[3], gradient.size(2), gradient.size(3), o};
    const MemoryFormat format = image_format(a);
    const Tensor image = contiguous(to(a, compute), format);
    const Tensor from = contiguous(to(gradient, compute), format);
    if (out.is_meta()) return to(out, a.dtype());
    HostTurn host;
    if (vulkan::holds(out)) {
      if (correlate_on_device(out, from, image, on_device(w), o.groups)) return to(out, a.dtype());
      host.take("conv2d's weight gradient", out.device());
    }
    if (format == kLast) {
      const Tensor found = zero_(empty(sizes, compute, a.device(), kLast));
      channels_last::correlate(found, from, image, w);
      return to(contiguous(found), a.dtype());
    }
    planes::correlate(out, from, image, w);
  }
  return to(out, a.dtype());
}

Tensor detail::conv2d(const Tensor& a, const Tensor& weight, const Tensor& bias,
                      const ConvOptions& o) {
  const Device device = device_to_offer("conv2d", {&a, &weight, &bias});
  check_dims("conv2d", a, weight, 4);
  check("conv2d", a, weight, bias, o, weight.size(1) * o.groups, weight.size(0));
  const std::int64_t height =
      places(a.size(2), weight.size(2), o.stride.height, o.padding.height, o.dilation.height);
  const std::int64_t width =
      places(a.size(3), weight.size(3), o.stride.width, o.padding.width, o.dilation.width);
  if (height == 0 || width == 0)
    throw InvalidArgument(fmt::format("conv2d: a kernel of {} is larger than the padded input {}",
                                      to_string(weight.sizes()), to_string(a.sizes())));
  const ConvWindow w{weight.size(1), a.size(2), a.size(3), weight.size(2),
                 weight.size(3), height,    width,     o};
  const DimVector sizes{a.size(0), weight.size(0), height, width};
  const MemoryFormat format = image_format(a);
  const bool by_onednn = is_worth_onednn(sizes, device, w) &&
                         !is_product(a.dtype(), a.size(0), weight.size(0), format, w);
  const DType compute =
      by_onednn && cpu::has_onednn_conv(a.dtype()) ? a.dtype() : compute_dtype(a.dtype());
  const Tensor out = empty(sizes, compute, device, format);
  if (a.numel() == 0) start_with(out, bias);
  if (out.numel() > 0 && a.numel() > 0) {
    const Tensor image = contiguous(to(a, compute), format);
    const Tensor filter = contiguous(to(weight, compute), format);
    const Tensor offset = bias.defined() ? contiguous(to(bias, compute)) : bias;
    if (out.is_meta()) return to(out, a.dtype());
    HostTurn host;
    if (vulkan::holds(out)) {
      if (convolve_on_device(out, image, filter, offset, on_device(w), o.groups))
        return to(out, a.dtype());
      host.take("conv2d", device);
    }
    const bool done = by_onednn && cpu::has_onednn_conv(compute) &&
                      cpu::onednn_conv2d(out, image, filter, offset, o);
    if (!done && compute == DType::kBF16)  // oneDNN has no direct kernel
      return to(detail::conv2d(to(a, DType::kF32), to(weight, DType::kF32),
                               bias.defined() ? to(bias, DType::kF32) : bias, o),
                compute);
    if (!done)
      format == kLast ? channels_last::convolve(out, image, filter, offset, w)
                      : planes::convolve(out, image, filter, offset, w);
  }
  return to(out, a.dtype());
}

Tensor detail::conv_transpose2d(const Tensor& a, const Tensor& weight, const Tensor& bias,
                                const ConvOptions& o) {
  const Device device = device_to_offer("conv_transpose2d", {&a, &weight, &bias});
  check_dims("conv_transpose2d", a, weight, 4);
  const std::int64_t filters = weight.size(1) * o.groups;
  check("conv_transpose2d", a, weight, bias, o, weight.size(0), filters);
  const std::int64_t height = (a.size(2) - 1) * o.stride.height - 2 * o.padding.height +
                              o.dilation.height * (weight.size(2) - 1) + o.output_padding.height +
                              1;
  const std::int64_t width = (a.size(3) - 1) * o.stride.width - 2 * o.padding.width +
                             o.dilation.width * (weight.size(3) - 1) + o.output_padding.width + 1;
  const bool padded = o.output_padding.height < std::max(o.stride.height, o.dilation.height) &&
                      o.output_padding.width < std::max(o.stride.width, o.dilation.width) &&
                      o.output_padding.height >= 0 && o.output_padding.width >= 0;
  if (height <= 0 || width <= 0 || !padded)
    throw InvalidArgument(fmt::format(
        "conv_transpose2d: an input of {} and a weight of {} give {} x {} with these options",
        to_string(a.sizes()), to_string(weight.sizes()), height, width));
  const ConvWindow w{weight.size(1), height,    width,     weight.size(2),
                 weight.size(3), a.size(2), a.size(3), o};
  // It is the gradient of a convolution that takes as many places as `a` has.
  const bool by_onednn = is_worth_onednn(a.sizes(), device, w) &&
                         o.output_padding.height < o.stride.height &&
                         o.output_padding.width < o.stride.width;
  const DType full = compute_dtype(a.dtype());
  const DType compute = by_onednn && cpu::has_onednn_conv(a.dtype()) ? a.dtype() : full;
  const MemoryFormat format = image_format(a);
  const Tensor out =
      empty({a.size(0), filters, height, width}, bias.defined() ? full : compute, device, format);
  const Tensor image = contiguous(to(a, compute), format);
  const Tensor filter = contiguous(to(weight, compute), format);
  if (a.numel() == 0 || out.numel() == 0) {
    start_with(out, bias);
    return to(out, a.dtype());
  }
  HostTurn host;
  if (vulkan::holds(out)) {
    const Tensor offset = bias.defined() ? contiguous(to(bias, full)) : bias;
    if (convolve_transposed_on_device(out, image, filter, offset, on_device(w), o.groups))
      return to(out, a.dtype());
    host.take("conv_transpose2d", device);
  }
  if (by_onednn && cpu::has_onednn_conv(compute) && !out.is_meta()) {
    if (cpu::onednn_conv2d_backward_input(out, image, filter, o)) {
      if (bias.defined()) add_(out, bias.view({1, -1, 1, 1}));
      return to(out, a.dtype());
    }
    if (compute != full)
      return to(detail::conv_transpose2d(to(a, full), to(weight, full),
                                         bias.defined() ? to(bias, full) : bias, o),
                a.dtype());
  }
  if (!out.is_meta())
    format == kLast ? channels_last::convolve_transposed(out, image, filter, bias, w)
                    : planes::convolve_transposed(out, image, filter, bias, w);
  return to(out, a.dtype());
}

Tensor detail::conv1d(const Tensor& a, const Tensor& weight, const Tensor& bias,
                      const ConvOptions& o) {
  check_dims("conv1d", a, weight, 3);
  ConvOptions flat = o;
  flat.stride.height = 1;
  flat.padding.height = 0;
  flat.dilation.height = 1;
  return ops::conv2d(a.unsqueeze(2), weight.unsqueeze(2), bias, flat).squeeze(2);
}

}  // namespace tenon::ops
