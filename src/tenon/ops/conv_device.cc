#include "tenon/ops/conv_device.h"

#include <algorithm>
#include <utility>

#include "tenon/ops/binary.h"
#include "tenon/ops/matmul.h"
#include "tenon/ops/shape.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::ops {
namespace {

using vulkan::WindowWork;

// Of a group's channels and images: [rows, images * places].
class Columns {
 public:
  Columns(const vulkan::Windows& w, std::int64_t all_channels, std::int64_t groups)
      : w_(w), all_channels_(all_channels), channels_(all_channels / groups) {}

  std::int64_t rows() const { return channels_ * w_.kernel.height * w_.kernel.width; }
  std::int64_t places() const { return w_.out_height * w_.out_width; }
  // How many images go together: their columns, and what the product with `others` rows makes of
  // them, are temporary.
  std::int64_t images_at_once(std::size_t item_bytes, std::int64_t others) const {
    constexpr std::int64_t kMostBytes = std::int64_t{4} << 20;
    const std::int64_t of_one =
        std::max(rows(), others) * places() * static_cast<std::int64_t>(item_bytes);
    return std::max<std::int64_t>(1, kMostBytes / std::max<std::int64_t>(1, of_one));
  }

  // Undefined where there is no kernel.
  Tensor of(const Tensor& images, std::int64_t group) const {
    const Tensor columns =
        empty({rows(), images.size(0) * places()}, images.dtype(), images.device());
    const bool done = vulkan::windows(WindowWork::kToColumns, columns, images, w_, images.size(0),
                                      all_channels_, group * channels_, channels_);
    return done ? columns : Tensor();
  }
  bool add_up(const Tensor& images, const Tensor& columns, std::int64_t group) const {
    return vulkan::windows(WindowWork::kToImage, images, columns, w_, images.size(0),
                           all_channels_, group * channels_, channels_);
  }

 private:
  const vulkan::Windows& w_;
  const std::int64_t all_channels_, channels_;
};

// [n, filters, height, width] of one group as [filters, n, height, width], without a copy.
Tensor by_filter(const Tensor& t, std::int64_t group, std::int64_t filters) {
  return t.narrow(1, group * filters, filters).transpose(0, 1);
}

// A group's part of the weight as a matrix [its first dimension, rows].
Tensor as_matrix(const Tensor& weight, std::int64_t group, std::int64_t first, std::int64_t rows) {
  return weight.narrow(0, group * first, first).reshape({first, rows});
}

void add_bias(const Tensor& out, const Tensor& bias) {
  if (bias.defined()) detail::binary_into(Binary::kAdd, out, out, bias.view({1, -1, 1, 1}));
}

}  // namespace

bool convolve_on_device(const Tensor& out, const Tensor& a, const Tensor& weight,
                        const Tensor& bias, const vulkan::Windows& w, std::int64_t groups) {
  if ((groups == 1 && weight.is_contiguous() && vulkan::convolve(out, weight, a, w, bias)) ||
      vulkan::convolve_by_shifts(out, weight, a, w, groups, bias))
    return true;
  const Columns columns(w, a.size(1), groups);
  const std::int64_t filters = weight.size(0) / groups;
  constexpr std::int64_t kFewFilters = 8;  // a product of so few rows leaves its tiles empty
  constexpr std::int64_t kMostElements = 4096;  // of a window
  if (groups > 1 && filters <= kFewFilters && a.is_contiguous() && weight.is_contiguous() &&
      out.is_contiguous() && columns.rows() <= kMostElements &&
      vulkan::windows(WindowWork::kWeigh, out, a, w, a.size(0), a.size(1), weight.size(0),
                      a.size(1) / groups, weight)) {
    add_bias(out, bias);
    return true;
  }
  const std::int64_t step = columns.images_at_once(a.item_size(), filters);
  for (std::int64_t first = 0; first < a.size(0); first += step) {
    const std::int64_t count = std::min(step, a.size(0) - first);
    for (std::int64_t group = 0; group < groups; ++group) {
      const Tensor matrix = columns.of(a.narrow(0, first, count), group);
      if (!matrix.defined()) return false;
      const Tensor product =
          ops::matmul(as_matrix(weight, group, filters, columns.rows()), matrix)
              .view({filters, count, w.out_height, w.out_width});
      const Tensor to = by_filter(out.narrow(0, first, count), group, filters);
      if (bias.defined())
        detail::binary_into(Binary::kAdd, to, product,
                            bias.narrow(0, group * filters, filters).view({-1, 1, 1, 1}));
      else
        copy_(to, product);
    }
  }
  return true;
}

namespace {

// With a stride of one the transpose is itself a convolution, by kernels that run backwards. False
// where it is another one, and on devices that would turn as many elements into columns for it.
bool convolve_backwards(const Tensor& out, const Tensor& a, const Tensor& weight,
                        const Tensor& bias, vulkan::Windows w, std::int64_t groups) {
  const Pair beyond{w.dilation.height * (w.kernel.height - 1) - w.padding.height,
                    w.dilation.width * (w.kernel.width - 1) - w.padding.width};
  if (!vulkan::reads_windows(out.device()) || w.stride.height != 1 || w.stride.width != 1 ||
      beyond.height < 0 || beyond.width < 0)
    return false;
  const IntList sizes = weight.sizes();  // [filters, channels of a group, kernel]
  const Tensor of_groups =
      weight.view({groups, sizes[0] / groups, sizes[1], sizes[2], sizes[3]}).transpose(1, 2);
  const Tensor turned =
      contiguous(ops::flip(of_groups, {3, 4}))
          .view({groups * sizes[1], sizes[0] / groups, sizes[2], sizes[3]});
  w.padding = beyond;
  std::swap(w.height, w.out_height);
  std::swap(w.width, w.out_width);
  return convolve_on_device(out, a, turned, bias, w, groups);
}

}  // namespace

bool convolve_transposed_on_device(const Tensor& out, const Tensor& a, const Tensor& weight,
                                   const Tensor& bias, const vulkan::Windows& w,
                                   std::int64_t groups) {
  if (vulkan::convolve_back_by_shifts(out, weight, a, w, groups)) {
    add_bias(out, bias);
    return true;
  }
  if (convolve_backwards(out, a, weight, bias, w, groups)) return true;
  const Columns columns(w, out.size(1), groups);
  const std::int64_t channels = a.size(1) / groups;
  const std::int64_t step = columns.images_at_once(a.item_size(), channels);
  for (std::int64_t first = 0; first < a.size(0); first += step) {
    const std::int64_t count = std::min(step, a.size(0) - first);
    for (std::int64_t group = 0; group < groups; ++group) {
      const Tensor from =
          by_filter(a.narrow(0, first, count), group, channels).reshape({channels, -1});
      const Tensor matrix =
          ops::matmul(as_matrix(weight, group, channels, columns.rows()).t(), from);
      if (!columns.add_up(out.narrow(0, first, count), matrix, group)) return false;
    }
  }
  add_bias(out, bias);
  return true;
}

bool correlate_on_device(const Tensor& out, const Tensor& gradient, const Tensor& a,
                         const vulkan::Windows& w, std::int64_t groups) {
  if (groups == 1 && vulkan::correlate(out, gradient, a, w)) return true;
  if (vulkan::correlate_by_shifts(out, gradient, a, w, groups)) return true;
  const Columns columns(w, a.size(1), groups);
  const std::int64_t filters = out.size(0) / groups;
  const std::int64_t step = columns.images_at_once(a.item_size(), filters);
  for (std::int64_t first = 0; first < a.size(0); first += step) {
    const std::int64_t count = std::min(step, a.size(0) - first);
    for (std::int64_t group = 0; group < groups; ++group) {
      const Tensor matrix = columns.of(a.narrow(0, first, count), group);
      if (!matrix.defined()) return false;
      const Tensor from =
          by_filter(gradient.narrow(0, first, count), group, filters).reshape({filters, -1});
      const Tensor to = out.narrow(0, group * filters, filters).view({filters, columns.rows()});
      const Tensor product = ops::matmul(from, matrix.t());
      first == 0 ? copy_(to, product) : detail::binary_into(Binary::kAdd, to, to, product);
    }
  }
  return true;
}

}  // namespace tenon::ops
