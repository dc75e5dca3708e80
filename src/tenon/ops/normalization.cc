#include "tenon/ops/normalization.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tenon/ops/binary.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/softmax_rows.h"
#include "tenon/ops/kernels/cpu/workspaces.h"
#include "tenon/ops/kernels/vulkan/device_kernels.h"
#include "tenon/ops/plane_norms.h"
#include "tenon/ops/row_loop.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::ops {
namespace {

// The last dimensions must be the normalised ones. Returns how many elements they have.
std::int64_t check_shape(const char* what, const Tensor& a, IntList shape) {
  const auto ndim = static_cast<std::size_t>(a.dim());
  if (shape.empty() || shape.size() > ndim ||
      !(IntList(a.sizes().data() + ndim - shape.size(), shape.size()) == shape))
    throw InvalidArgument(fmt::format("{}: shape {} does not end in {}", what, to_string(a.sizes()),
                                      to_string(shape)));
  if (tenon::detail::is_labelled(a)) [[unlikely]]  // the shape is plain: so are those dimensions
    for (std::size_t d = ndim - shape.size(); d < ndim; ++d)
      tenon::detail::assume_hint(a.sym_sizes()[d]);
  return numel_of(shape);
}

// A weight or bias as dense elements in the dtype of the computation; undefined stays so.
Tensor parameter(const char* what, const Tensor& p, std::int64_t elements, DType dtype) {
  if (!p.defined()) return p;
  if (p.numel() != elements)
    throw InvalidArgument(fmt::format("{}: a weight or bias of shape {} for {} elements", what,
                                      to_string(p.sizes()), elements));
  return contiguous(to(p, dtype));
}

const void* data_or_null(const Tensor& t) { return t.defined() ? t.const_data_ptr() : nullptr; }

// As normalize_rows, of 16-bit floats on the host: rows are widened in the cache, and their results
// are apart, since what is written would delay reading beside it.
template <typename Statistics>
Tensor normalize_narrow_rows(const Tensor& a, std::int64_t length, const Tensor& weight,
                             const Tensor& bias, Statistics&& statistics) {
  const Tensor dense = contiguous(a);
  Tensor out = empty(a.sizes(), a.dtype());
  const cpu::RowFunctions functions = cpu::row_functions(DType::kF32);
  const auto item = static_cast<std::int64_t>(a.item_size());
  const auto* from = static_cast<const char*>(dense.const_data_ptr());
  auto* to = static_cast<char*>(out.data_ptr());
  const std::int64_t rows = a.numel() / length;
  const std::int64_t together = std::max<std::int64_t>(1, 1024 / length);  // short ones
  const auto room_bytes = together * length * static_cast<std::int64_t>(sizeof(float));
  cpu::Workspaces rooms(static_cast<std::size_t>(2 * room_bytes), rows);
  parallel_for(0, rows, even_grain(rows, 16384 / length),
               [&](std::int64_t begin, std::int64_t end) {
                 char* const room = rooms.take();
                 for (std::int64_t i = begin; i < end; i += together) {
                   const std::int64_t count = std::min(together, end - i) * length;
                   tenon::detail::convert_elements(DType::kF32, room, a.dtype(),
                                                   from + i * length * item, count);
                   for (std::int64_t at = 0; at < count; at += length) {
                     char* const row = room + at * static_cast<std::int64_t>(sizeof(float));
                     double mean = 0, scale = 1;
                     statistics(functions, row, mean, scale);
                     functions.affine(row + room_bytes, row, length, mean, scale,
                                      data_or_null(weight), data_or_null(bias));
                   }
                   tenon::detail::convert_elements(a.dtype(), to + i * length * item,
                                                   DType::kF32, room + room_bytes, count);
                 }
                 rooms.give(room);
               });
  return out;
}

// Rows of `length` elements: statistics(functions, row, mean, scale) decides what is taken away and
// multiplied; on a device, the kind does.
template <typename Statistics>
Tensor normalize_rows(const char* what, vulkan::Rows kind, double eps, const Tensor& a,
                      std::int64_t length, const Tensor& weight, const Tensor& bias,
                      Statistics&& statistics) {
  if (compute_dtype(a.dtype()) != a.dtype() && a.device() == Device{} && a.numel() > 0)
    return normalize_narrow_rows(a, length, weight, bias, statistics);
  const Tensor dense = contiguous(to(a, compute_dtype(a.dtype())));
  const RowView view(length == 0 ? dense.reshape({-1}) : dense.view({-1, length}), -1);
  const Tensor out = empty(a.sizes(), dense.dtype(), a.device());
  HostTurn host;
  if (vulkan::holds(a) && out.numel() > 0) {
    if (vulkan::rows(kind, out, length, 1, dense, weight, bias, eps)) return to(out, a.dtype());
    host.take(what, a.device());
  }
  const cpu::RowFunctions functions = cpu::row_functions(dense.dtype());
  auto* result = static_cast<char*>(out.data_ptr());
  const auto bytes = static_cast<std::int64_t>(out.item_size()) * length;
  view.for_each([&](std::int64_t i, const char* row) {
    double mean = 0;
    double scale = 1;
    statistics(functions, row, mean, scale);
    functions.affine(result + i * bytes, row, length, mean, scale, data_or_null(weight),
                     data_or_null(bias));
  });
  return to(out, a.dtype());
}

auto centred(std::int64_t length, double eps) {
  return [=](const cpu::RowFunctions& f, const char* row, double& mean, double& scale) {
    double variance = 0;
    f.moments(row, length, &mean, &variance);
    scale = 1 / std::sqrt(variance + eps);
  };
}

// Groups of channels normalised, then weight and bias, in one pass after that of the statistics.
Tensor normalize_groups(const Tensor& a, std::int64_t groups, const Tensor& weight,
                        const Tensor& bias, double eps) {
  const std::int64_t channels = a.size(1), of_group = channels / groups;
  const std::int64_t rows = a.size(0) * groups;
  const Tensor moments = moments_of_rows(a, a.numel() / rows);
  const auto* const found = moments.const_data_ptr<double>();
  const std::vector<double> weights = numbers_of(weight, channels, 1);
  const std::vector<double> biases = numbers_of(bias, channels, 0);
  std::vector<PlaneNumbers> numbers(static_cast<std::size_t>(a.size(0) * channels));
  for (std::size_t plane = 0; plane < numbers.size(); ++plane) {
    const auto group = static_cast<std::int64_t>(plane) / of_group;
    const std::size_t channel = plane % static_cast<std::size_t>(channels);
    const double factor = weights[channel] / std::sqrt(found[2 * group + 1] + eps);
    numbers[plane] = {factor, biases[channel] - found[2 * group] * factor};
  }
  return scale_planes(a, numbers);
}

}  // namespace

Tensor detail::layer_norm(const Tensor& a, IntList shape, const Tensor& weight, const Tensor& bias,
                          double eps) {
  device_to_offer("layer_norm", {&a, &weight, &bias});
  check_floating("layer_norm", a);
  const std::int64_t length = check_shape("layer_norm", a, shape);
  const DType compute = compute_dtype(a.dtype());
  return normalize_rows("layer_norm", vulkan::Rows::kLayerNorm, eps, a, length,
                        parameter("layer_norm", weight, length, compute),
                        parameter("layer_norm", bias, length, compute), centred(length, eps));
}

Tensor detail::rms_norm(const Tensor& a, IntList shape, const Tensor& weight, double eps) {
  device_to_offer("rms_norm", {&a, &weight});
  check_floating("rms_norm", a);
  const std::int64_t length = check_shape("rms_norm", a, shape);
  return normalize_rows(
      "rms_norm", vulkan::Rows::kRmsNorm, eps, a, length,
      parameter("rms_norm", weight, length, compute_dtype(a.dtype())), {},
      [=](const cpu::RowFunctions& f, const char* row, double& mean, double& scale) {
        mean = 0;  // nothing is taken away
        scale = 1 / std::sqrt(f.mean_square(row, length) + eps);
      });
}

Tensor detail::group_norm(const Tensor& a, std::int64_t groups, const Tensor& weight,
                          const Tensor& bias, double eps) {
  device_to_offer("group_norm", {&a, &weight, &bias});
  check_floating("group_norm", a);
  check_channels("group_norm", a, {&weight, &bias});
  if (groups < 1 || a.size(1) % groups != 0)
    throw InvalidArgument(fmt::format("group_norm: {} groups of the {} channels of shape {}",
                                      groups, a.size(1), to_string(a.sizes())));
  const std::int64_t rows = a.size(0) * groups;
  const std::int64_t length = rows == 0 ? 0 : a.numel() / rows;
  if (are_worth_calls(a)) return normalize_groups(a, groups, weight, bias, eps);
  Tensor out = normalize_rows("group_norm", vulkan::Rows::kLayerNorm, eps, a, length, {}, {},
                              centred(length, eps));
  if (weight.defined()) out = mul(out, to(by_channel(weight, a), a.dtype()));
  if (bias.defined()) out = add(out, to(by_channel(bias, a), a.dtype()));
  return out;
}

}  // namespace tenon::ops
