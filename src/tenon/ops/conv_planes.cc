#include <algorithm>

#include "tenon/base/parallel.h"
#include "tenon/ops/conv_host.h"
#include "tenon/ops/kernels/cpu/gemm.h"
#include "tenon/ops/kernels/cpu/windows.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"

namespace tenon::ops {
namespace {

// Calls body(place in the columns' row, source, count, step) for each stretch of a row of the
// columns that lies within the image, and rest(place, count) for what lies in the padding.
template <typename Stretch, typename Padding>
void for_stretches(const ConvWindow& w, std::int64_t row, Stretch&& stretch, Padding&& padding) {
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
void image_to_columns(const ConvWindow& w, const T* image, T* columns) {
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
void columns_to_image(const ConvWindow& w, const T* columns, T* image) {
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

// Groups of single channels. False: it has to be done in another way.
bool convolve_channels(const Tensor& out, const Tensor& a, const Tensor& weight, const Tensor& bias,
                       const ConvWindow& w) {
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
void multiply_columns(const Tensor& out, const Tensor& a, const Tensor& weight, const ConvWindow& w,
              bool adds) {
  const std::int64_t groups = w.options.groups;
  const std::int64_t filters = weight.size(0) / groups;
  const std::int64_t image = w.channels * w.height * w.width;
  cpu::Products product{a.dtype(), filters, w.columns(), w.rows()};
  product.a = {weight.const_data_ptr<T>(), w.rows(), false};
  product.b = {a.const_data_ptr<T>(), w.columns(), false};
  product.beta = adds ? 1 : 0;
  product.out = out.data_ptr<T>();
  product.out_stride = w.columns();
  product.out_apart = filters * w.columns();
  if (w.is_plain() && groups == 1) {
    product.count = a.size(0);
    product.b_apart = image;
    return cpu::gemm(product);
  }
  const Tensor columns = w.is_plain() ? Tensor() : empty({w.rows(), w.columns()}, a.dtype());
  for (std::int64_t i = 0; i < a.size(0) * groups; ++i) {
    cpu::Products one = product;
    one.a.data = weight.const_data_ptr<T>() + i % groups * filters * w.rows();
    one.b.data = a.const_data_ptr<T>() + i * image;
    one.out = out.data_ptr<T>() + i * product.out_apart;
    if (!w.is_plain()) {
      image_to_columns(w, a.const_data_ptr<T>() + i * image, columns.data_ptr<T>());
      one.b.data = columns.const_data_ptr<T>();
    }
    cpu::gemm(one);
  }
}

template <typename T>
void add_columns(const Tensor& out, const Tensor& a, const Tensor& weight,
                         const ConvWindow& w) {
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
void correlate_columns(const Tensor& out, const Tensor& gradient, const Tensor& a,
                       const ConvWindow& w) {
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

// Many channels of few places: a row of columns would have few elements, a window's row has many.
bool has_few_places(const ConvWindow& w) {
  constexpr std::int64_t kManyChannels = 8, kPlacesOfChannel = 16;
  return w.options.groups == 1 && w.channels >= kManyChannels &&
         w.columns() <= kPlacesOfChannel * w.channels && !w.is_plain();
}

Tensor in_rows(const Tensor& t) { return contiguous(t, MemoryFormat::kChannelsLast); }

// `out` by run(the same in rows).
template <typename Run>
void by_rows(const Tensor& out, Run&& run) {
  const Tensor rows = in_rows(out);
  run(rows);
  copy_(out, rows);
}

}  // namespace

void planes::convolve(const Tensor& out, const Tensor& a, const Tensor& weight, const Tensor& bias,
                      const ConvWindow& w) {
  if (convolve_channels(out, a, weight, bias, w)) return;
  if (has_few_places(w))
    return by_rows(out, [&](const Tensor& rows) {
      channels_last::convolve(rows, in_rows(a), in_rows(weight), bias, w);
    });
  const bool adds = bias.defined();
  if (adds) copy_(out, bias.view({1, -1, 1, 1}));
  out.dtype() == DType::kF64 ? multiply_columns<double>(out, a, weight, w, adds)
                             : multiply_columns<float>(out, a, weight, w, adds);
}

void planes::convolve_transposed(const Tensor& out, const Tensor& a, const Tensor& weight,
                                 const Tensor& bias, const ConvWindow& w) {
  if (has_few_places(w))
    return by_rows(out, [&](const Tensor& rows) {
      channels_last::convolve_transposed(rows, in_rows(a), in_rows(weight), bias, w);
    });
  bias.defined() ? copy_(out, bias.view({1, -1, 1, 1})) : zero_(out);
  out.dtype() == DType::kF64 ? add_columns<double>(out, a, weight, w)
                             : add_columns<float>(out, a, weight, w);
}

void planes::correlate(const Tensor& out, const Tensor& gradient, const Tensor& a,
                       const ConvWindow& w) {
  const bool has_single_channels =  // whose columns would be one by one
      w.channels == 1 && w.options.groups > 1 && w.options.groups == out.size(0);
  if (has_single_channels) return channels_last::correlate(out, in_rows(gradient), in_rows(a), w);
  if (has_few_places(w))
    return by_rows(out, [&](const Tensor& rows) {
      channels_last::correlate(rows, in_rows(gradient), in_rows(a), w);
    });
  out.dtype() == DType::kF64 ? correlate_columns<double>(out, gradient, a, w)
                             : correlate_columns<float>(out, gradient, a, w);
}

}  // namespace tenon::ops
