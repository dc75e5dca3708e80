#include "tenon/ops/conv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tenon/base/parallel.h"
#include "tenon/ops/binary.h"
#include "tenon/ops/conv_device.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/gemm.h"
#include "tenon/ops/kernels/cpu/onednn_conv.h"
#include "tenon/ops/kernels/cpu/windows.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::ops {
namespace {

// One image's sizes under a kernel that walks it. For the transposed convolution `image` is the
// output.
struct Window {
  std::int64_t channels, height, width;  // of the image, in one group
  std::int64_t kernel_height, kernel_width;
  std::int64_t out_height, out_width;  // how many places the kernel takes
  ConvOptions options;

  vulkan::Windows on_device() const {
    return {height,
            width,
            out_height,
            out_width,
            {kernel_height, kernel_width},
            options.stride,
            options.padding,
            options.dilation};
  }

  std::int64_t rows() const { return channels * kernel_height * kernel_width; }
  std::int64_t columns() const { return out_height * out_width; }
};

// Calls body(place in the columns' row, source, count, step) for each stretch of a row of the
// columns that lies within the image, and rest(place, count) for what lies in the padding.
template <typename Stretch, typename Padding>
void for_stretches(const Window& w, std::int64_t row, Stretch&& stretch, Padding&& padding) {
  const std::int64_t kx = row % w.kernel_width;
  const std::int64_t ky = row / w.kernel_width % w.kernel_height;
  const std::int64_t channel = row / w.kernel_width / w.kernel_height;
  const Pair& stride = w.options.stride;
  const std::int64_t x0 = kx * w.options.dilation.width - w.options.padding.width;
  // The places x with 0 <= x0 + x * stride < width.
  const auto ceil_div = [](std::int64_t a, std::int64_t b) { return a <= 0 ? 0 : (a + b - 1) / b; };
  const std::int64_t first = std::min(ceil_div(-x0, stride.width), w.out_width);
  const std::int64_t last = std::clamp(ceil_div(w.width - x0, stride.width), first, w.out_width);
  for (std::int64_t y = 0; y < w.out_height; ++y) {
    const std::int64_t at = y * w.out_width;
    const std::int64_t from_y =
        y * stride.height + ky * w.options.dilation.height - w.options.padding.height;
    if (from_y < 0 || from_y >= w.height) {
      padding(at, w.out_width);
      continue;
    }
    padding(at, first);
    const std::int64_t source = (channel * w.height + from_y) * w.width + x0 + first * stride.width;
    stretch(at + first, source, last - first, stride.width);
    padding(at + last, w.out_width - last);
  }
}

// [channels, height, width] -> [channels * kh * kw, places]: a convolution becomes a product.
template <typename T>
void image_to_columns(const Window& w, const T* image, T* columns) {
  parallel_for(
      0, w.rows(), std::max<std::int64_t>(1, 16384 / w.columns()),
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          T* out = columns + row * w.columns();
          for_stretches(
              w, row,
              [&](std::int64_t at, std::int64_t source, std::int64_t count, std::int64_t step) {
                if (step == 1) {
                  std::copy_n(image + source, count, out + at);
                  return;
                }
                for (std::int64_t i = 0; i < count; ++i) out[at + i] = image[source + i * step];
              },
              [&](std::int64_t at, std::int64_t count) { std::fill_n(out + at, count, T(0)); });
        }
      });
}

// The reverse: adds every column to where it came from. Channels are independent, so threads share
// nothing.
template <typename T>
void columns_to_image(const Window& w, const T* columns, T* image) {
  const std::int64_t taps = w.kernel_height * w.kernel_width;
  parallel_for(
      0, w.channels, std::max<std::int64_t>(1, 16384 / (taps * w.columns())),
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin * taps; row < end * taps; ++row) {
          const T* in = columns + row * w.columns();
          for_stretches(
              w, row,
              [&](std::int64_t at, std::int64_t target, std::int64_t count, std::int64_t step) {
                for (std::int64_t i = 0; i < count; ++i) image[target + i * step] += in[at + i];
              },
              [](std::int64_t, std::int64_t) {});
        }
      });
}

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
  if (!numbers)
    throw InvalidArgument(fmt::format("{}: stride {}x{}, padding {}x{}, dilation {}x{}, groups {}",
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

// Fills [N, out, H, W] with the bias, or zero.
void start_with(const Tensor& out, const Tensor& bias) {
  if (out.is_meta()) return;
  if (bias.defined())
    copy_(out, bias.view({1, -1, 1, 1}));
  else
    zero_(out);
}

// A kernel of 1 x 1 is a product as it is, or of the places that its strides reach. In f32, that is
// faster where an image has more than a few, and threads divide that of a single image better.
bool is_product(DType dtype, std::int64_t images, const Window& w) {
  constexpr std::int64_t kFew = 128;
  const bool is_half = dtype == DType::kBF16 && cpu::has_onednn_conv(dtype);
  return w.kernel_height == 1 && w.kernel_width == 1 && w.options.groups == 1 &&
         (w.columns() >= kFew || images == 1) && !is_half;
}

// oneDNN computes without columns in memory, but takes some ten microseconds to begin.
bool is_worth_onednn(IntList out, Device device, const Window& w) {
  const bool is_on_host = device.type == DeviceType::kCpu || device.type == DeviceType::kMeta;
  const bool is_by_channels = w.channels == 1 && w.options.groups > 1;
  return is_on_host && !is_by_channels && numel_of(out) * w.rows() > 1'000'000;
}

// Groups of single channels. False: it has to be done in another way.
bool convolve_channels(const Tensor& out, const Tensor& a, const Tensor& weight, const Tensor& bias,
                       const Window& w) {
  const ConvOptions& o = w.options;
  if (w.channels != 1 || o.groups == 1) return false;
  const cpu::WindowWork work{out.dtype(),
                             w.height,
                             w.width,
                             w.out_height,
                             w.out_width,
                             {w.kernel_height, w.kernel_width},
                             o.stride,
                             o.padding,
                             o.dilation};
  return cpu::walk_windows(work, out.data_ptr(), a.const_data_ptr(), a.size(0) * o.groups, o.groups,
                           weight.size(0) / o.groups, weight.const_data_ptr(),
                           bias.defined() ? bias.const_data_ptr() : nullptr);
}

// Adds to what is in `out`, or writes over it.
template <typename T>
void convolve(const Tensor& out, const Tensor& a, const Tensor& weight, const Window& w,
              bool adds) {
  const std::int64_t groups = w.options.groups;
  const std::int64_t filters = weight.size(0) / groups;
  const std::int64_t image = w.channels * w.height * w.width;
  const bool is_plain = w.kernel_height == 1 && w.kernel_width == 1 &&
                        w.options.stride.height == 1 && w.options.stride.width == 1 &&
                        w.options.padding.height == 0 && w.options.padding.width == 0;
  cpu::Products product{a.dtype(), filters, w.columns(), w.rows()};
  product.a = {weight.const_data_ptr<T>(), w.rows(), false};
  product.b = {a.const_data_ptr<T>(), w.columns(), false};
  product.beta = adds ? 1 : 0;
  product.out = out.data_ptr<T>();
  product.out_stride = w.columns();
  product.out_apart = filters * w.columns();
  if (is_plain && groups == 1) {
    product.count = a.size(0);
    product.b_apart = image;
    return cpu::gemm(product);
  }
  const Tensor columns = is_plain ? Tensor() : empty({w.rows(), w.columns()}, a.dtype());
  for (std::int64_t i = 0; i < a.size(0) * groups; ++i) {
    cpu::Products one = product;
    one.a.data = weight.const_data_ptr<T>() + i % groups * filters * w.rows();
    one.b.data = a.const_data_ptr<T>() + i * image;
    one.out = out.data_ptr<T>() + i * product.out_apart;
    if (!is_plain) {
      image_to_columns(w, a.const_data_ptr<T>() + i * image, columns.data_ptr<T>());
      one.b.data = columns.const_data_ptr<T>();
    }
    cpu::gemm(one);
  }
}

template <typename T>
void convolve_transposed(const Tensor& out, const Tensor& a, const Tensor& weight,
                         const Window& w) {
  const std::int64_t groups = w.options.groups;
  const std::int64_t channels = a.size(1) / groups;
  const Tensor columns = empty({w.rows(), w.columns()}, a.dtype());
  for (std::int64_t i = 0; i < a.size(0) * groups; ++i) {
    const T* image = a.const_data_ptr<T>() + i * channels * w.columns();
    const cpu::Matrix filter{weight.const_data_ptr<T>() + i % groups * channels * w.rows(),
                             w.rows(), true};
    cpu::gemm(a.dtype(), w.rows(), w.columns(), channels, filter, {image, w.columns(), false}, 0,
              columns.data_ptr<T>(), w.columns());
    columns_to_image(w, columns.const_data_ptr<T>(),
                     out.data_ptr<T>() + i * w.channels * w.height * w.width);
  }
}

// out [filters, channels, kh, kw] += gradient [n, filters, places] times the columns, transposed.
template <typename T>
void correlate(const Tensor& out, const Tensor& gradient, const Tensor& a, const Window& w) {
  const std::int64_t groups = w.options.groups;
  const std::int64_t filters = out.size(0) / groups;
  const Tensor columns = empty({w.rows(), w.columns()}, a.dtype());
  for (std::int64_t i = 0; i < a.size(0) * groups; ++i) {
    const T* image = a.const_data_ptr<T>() + i * w.channels * w.height * w.width;
    image_to_columns(w, image, columns.data_ptr<T>());
    const cpu::Matrix rows{gradient.const_data_ptr<T>() + i * filters * w.columns(), w.columns(),
                           false};
    cpu::gemm(a.dtype(), filters, w.rows(), w.columns(), rows,
              {columns.const_data_ptr<T>(), w.columns(), true}, 1,
              out.data_ptr<T>() + i % groups * filters * w.rows(), w.rows());
  }
}

}  // namespace

Tensor detail::conv2d_weight_gradient(const Tensor& gradient, const Tensor& a, IntList sizes,
                                      const ConvOptions& o) {
  const DType compute = compute_dtype(a.dtype());
  const Tensor out = zeros(sizes, compute, a.device());
  if (gradient.numel() > 0) {
    const Window w{sizes[1], a.size(2), a.size(3),        sizes[2],
                   sizes[3], gradient.size(2), gradient.size(3), o};
    const Tensor image = contiguous(to(a, compute));
    const Tensor from = contiguous(to(gradient, compute));
    if (out.is_meta()) return to(out, a.dtype());
    HostTurn host;
    if (vulkan::holds(out)) {
      if (correlate_on_device(out, from, image, w.on_device(), o.groups)) return to(out, a.dtype());
      host.take("conv2d's weight gradient", out.device());
    }
    compute == DType::kF64 ? correlate<double>(out, from, image, w)
                           : correlate<float>(out, from, image, w);
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
  const Window w{weight.size(1), a.size(2), a.size(3), weight.size(2),
                 weight.size(3), height,    width,     o};
  const DimVector sizes{a.size(0), weight.size(0), height, width};
  const bool by_onednn = is_worth_onednn(sizes, device, w) && !is_product(a.dtype(), a.size(0), w);
  const DType compute =
      by_onednn && cpu::has_onednn_conv(a.dtype()) ? a.dtype() : compute_dtype(a.dtype());
  const Tensor out = empty(sizes, compute, device);
  if (out.numel() > 0) {
    const Tensor image = contiguous(to(a, compute));
    const Tensor filter = contiguous(to(weight, compute));
    const Tensor offset = bias.defined() ? contiguous(to(bias, compute)) : bias;
    if (out.is_meta()) return to(out, a.dtype());
    HostTurn host;
    if (vulkan::holds(out)) {
      if (convolve_on_device(out, image, filter, offset, w.on_device(), o.groups))
        return to(out, a.dtype());
      host.take("conv2d", device);
    }
    const bool done = by_onednn && cpu::has_onednn_conv(compute)
                          ? cpu::onednn_conv2d(out, image, filter, offset, o)
                          : convolve_channels(out, image, filter, offset, w);
    if (!done && compute == DType::kBF16)  // oneDNN has no direct kernel
      return to(detail::conv2d(to(a, DType::kF32), to(weight, DType::kF32),
                       bias.defined() ? to(bias, DType::kF32) : bias, o),
                compute);
    if (!done) {
      const bool adds = offset.defined();
      if (adds) start_with(out, offset);
      compute == DType::kF64 ? convolve<double>(out, image, filter, w, adds)
                             : convolve<float>(out, image, filter, w, adds);
    }
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
  const Window w{weight.size(1), height,    width,     weight.size(2),
                 weight.size(3), a.size(2), a.size(3), o};
  // It is the gradient of a convolution that takes as many places as `a` has.
  const bool by_onednn = is_worth_onednn(a.sizes(), device, w) &&
                         o.output_padding.height < o.stride.height &&
                         o.output_padding.width < o.stride.width;
  const DType full = compute_dtype(a.dtype());
  const DType compute = by_onednn && cpu::has_onednn_conv(a.dtype()) ? a.dtype() : full;
  const Tensor out =
      empty({a.size(0), filters, height, width}, bias.defined() ? full : compute, device);
  const Tensor image = contiguous(to(a, compute));
  const Tensor filter = contiguous(to(weight, compute));
  HostTurn host;
  if (vulkan::holds(out) && a.numel() > 0) {
    const Tensor offset = bias.defined() ? contiguous(to(bias, full)) : bias;
    if (convolve_transposed_on_device(out, image, filter, offset, w.on_device(), o.groups))
      return to(out, a.dtype());
    host.take("conv_transpose2d", device);
  }
  if (by_onednn && cpu::has_onednn_conv(compute) && !out.is_meta() && out.numel() > 0) {
    if (cpu::onednn_conv2d_backward_input(out, image, filter, o)) {
      if (bias.defined()) add_(out, bias.view({1, -1, 1, 1}));
      return to(out, a.dtype());
    }
    if (compute != full)
      return to(detail::conv_transpose2d(to(a, full), to(weight, full),
                                         bias.defined() ? to(bias, full) : bias, o),
                a.dtype());
  }
  start_with(out, bias);
  if (!out.is_meta() && a.numel() > 0) {
    compute == DType::kF64 ? convolve_transposed<double>(out, image, filter, w)
                           : convolve_transposed<float>(out, image, filter, w);
  }
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
