#include "tenon/ops/normalization.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tenon/ops/binary.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/blocks.h"
#include "tenon/ops/kernels/cpu/softmax_rows.h"
#include "tenon/ops/kernels/cpu/workspaces.h"
#include "tenon/ops/kernels/vulkan/device_kernels.h"
#include "tenon/ops/reduce.h"
#include "tenon/ops/row_loop.h"
#include "tenon/ops/unary.h"
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
  const auto load = tenon::detail::conversion_row(DType::kF32, a.dtype());
  const auto store = tenon::detail::conversion_row(a.dtype(), DType::kF32);
  const cpu::RowFunctions functions = cpu::row_functions(DType::kF32);
  const auto item = static_cast<std::int64_t>(a.item_size());
  auto* from = static_cast<char*>(const_cast<void*>(dense.const_data_ptr()));
  auto* to = static_cast<char*>(out.data_ptr());
  const std::int64_t rows = a.numel() / length;
  const std::int64_t together = std::max<std::int64_t>(1, 1024 / length);  // short ones
  const std::int64_t wide[2] = {sizeof(float), item}, narrow[2] = {item, sizeof(float)};
  const auto room_bytes = together * length * static_cast<std::int64_t>(sizeof(float));
  cpu::Workspaces rooms(static_cast<std::size_t>(2 * room_bytes), rows);
  parallel_for(0, rows, std::max<std::int64_t>(1, 16384 / length),
               [&](std::int64_t begin, std::int64_t end) {
                 char* const room = rooms.take();
                 for (std::int64_t i = begin; i < end; i += together) {
                   const std::int64_t count = std::min(together, end - i) * length;
                   char* read[2] = {room, from + i * length * item};
                   load(read, wide, count);
                   for (std::int64_t at = 0; at < count; at += length) {
                     char* const row = room + at * static_cast<std::int64_t>(sizeof(float));
                     double mean = 0, scale = 1;
                     statistics(functions, row, mean, scale);
                     functions.affine(row + room_bytes, row, length, mean, scale,
                                      data_or_null(weight), data_or_null(bias));
                   }
                   char* written[2] = {to + i * length * item, room + room_bytes};
                   store(written, narrow, count);
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

// A number of a parameter or a statistic, or `otherwise` where there is none.
double number_at(const Tensor& t, std::int64_t i, double otherwise) {
  if (!t.defined()) return otherwise;
  return t.dtype() == DType::kF64 ? t.const_data_ptr<double>()[i]
                                  : static_cast<double>(t.const_data_ptr<float>()[i]);
}

// Planes of one channel that are worth a call each, on the host.
bool has_long_planes(const Tensor& a) {
  constexpr std::int64_t kLong = 16;
  return a.device() == Device{} && a.is_contiguous() && a.numel() > 0 &&
         a.numel() >= kLong * a.size(0) * a.size(1);
}

// x * factor + shift, the two of each plane as numbers(plane) gives them. 16-bit floats are widened
// in pieces. Requires: dense.
template <typename Numbers>
Tensor by_planes(const Tensor& a, Numbers&& numbers) {
  constexpr std::int64_t kPiece = 2048;
  const std::int64_t planes = a.size(0) * a.size(1), length = a.numel() / planes;
  const Tensor out = empty(a.sizes(), a.dtype());
  const DType compute = compute_dtype(a.dtype());
  const auto scale = cpu::row_functions(compute).scale;
  const auto load = tenon::detail::conversion_row(compute, a.dtype());
  const auto store = tenon::detail::conversion_row(a.dtype(), compute);
  const auto item = static_cast<std::int64_t>(a.item_size());
  const std::int64_t bytes = length * item;
  const std::int64_t wide[2] = {sizeof(float), item}, narrow[2] = {item, sizeof(float)};
  auto* from = static_cast<char*>(const_cast<void*>(a.const_data_ptr()));
  auto* to = static_cast<char*>(out.data_ptr());
  parallel_for(0, planes, std::max<std::int64_t>(1, 16384 / length),
               [&](std::int64_t begin, std::int64_t end) {
                 alignas(64) float room[2][kPiece];
                 char* const widened = reinterpret_cast<char*>(room[0]);
                 char* const scaled = reinterpret_cast<char*>(room[1]);
                 for (std::int64_t i = begin; i < end; ++i) {
                   const auto [factor, shift] = numbers(i);
                   if (a.dtype() == compute) {
                     scale(to + i * bytes, from + i * bytes, length, factor, shift);
                     continue;
                   }
                   for (std::int64_t at = 0; at < length; at += kPiece) {
                     const std::int64_t count = std::min(kPiece, length - at);
                     char* read[2] = {widened, from + i * bytes + at * item};
                     load(read, wide, count);
                     scale(scaled, widened, count, factor, shift);
                     char* written[2] = {to + i * bytes + at * item, scaled};
                     store(written, narrow, count);
                   }
                 }
               });
  return out;
}

// x * scale + shift by channels.
Tensor scaled_channels(const Tensor& a, const Tensor& scale, const Tensor& shift) {
  const Tensor s = contiguous(scale), t = contiguous(shift);
  return by_planes(a, [&, channels = a.size(1)](std::int64_t plane) {
    return std::pair(number_at(s, plane % channels, 1), number_at(t, plane % channels, 0));
  });
}

// Groups of channels normalised, then weight and bias, in one pass after that of the statistics.
Tensor normalize_groups(const Tensor& a, std::int64_t groups, const Tensor& weight,
                        const Tensor& bias, double eps) {
  const std::int64_t rows = a.size(0) * groups, length = a.numel() / rows;
  const Tensor statistics = empty({rows, 2}, DType::kF64);
  auto* found = statistics.data_ptr<double>();
  const DType compute = compute_dtype(a.dtype());
  const auto moments = cpu::row_functions(compute).moments;
  const auto load = tenon::detail::conversion_row(compute, a.dtype());
  const auto item = static_cast<std::int64_t>(a.item_size());
  const std::int64_t wide[2] = {sizeof(float), item};
  auto* from = static_cast<char*>(const_cast<void*>(a.const_data_ptr()));
  cpu::Workspaces rooms(
      a.dtype() == compute ? 0 : static_cast<std::size_t>(length) * sizeof(float), rows);
  parallel_for(0, rows, std::max<std::int64_t>(1, 16384 / length),
               [&](std::int64_t begin, std::int64_t end) {
                 char* const room = rooms.take();
                 for (std::int64_t i = begin; i < end; ++i) {
                   char* read[2] = {room, from + i * length * item};
                   if (a.dtype() != compute) load(read, wide, length);
                   double variance = 0;
                   moments(a.dtype() == compute ? read[1] : room, length, found + 2 * i, &variance);
                   found[2 * i + 1] = 1 / std::sqrt(variance + eps);
                 }
                 rooms.give(room);
               });
  const std::int64_t channels = a.size(1), of_group = channels / groups;
  return by_planes(a, [&](std::int64_t plane) {
    const double* const of = found + 2 * (plane / of_group);
    const double factor = of[1] * number_at(weight, plane % channels, 1);
    return std::pair(factor, number_at(bias, plane % channels, 0) - of[0] * factor);
  });
}

// x * scale + shift.
template <typename T>
void scale_and_shift(void* out, const void* const* in, std::int64_t count, const double*) {
  static const BlockFunction multiply = cpu::binary_block(Binary::kMul, dtype_of<T>());
  static const BlockFunction add = cpu::binary_block(Binary::kAdd, dtype_of<T>());
  multiply(out, in, count, nullptr);
  const void* const both[2] = {out, in[2]};
  add(out, both, count, nullptr);
}

// A parameter by channel in the shape that broadcasts over a batch: [1, C, 1, ...].
Tensor by_channel(const Tensor& p, const Tensor& a) {
  DimVector sizes(static_cast<std::size_t>(a.dim()), 1);
  sizes[1] = p.numel();
  return p.reshape(sizes);
}

void check_channels(const char* what, const Tensor& a, std::initializer_list<const Tensor*> all) {
  if (a.dim() < 2)
    throw InvalidArgument(
        fmt::format("{}: shape {} has no channels (dimension 1)", what, to_string(a.sizes())));
  for (const Tensor* p : all)
    if (p->defined() && p->numel() != a.size(1))
      throw InvalidArgument(fmt::format("{}: {} numbers for the {} channels of shape {}", what,
                                        p->numel(), a.size(1), to_string(a.sizes())));
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
  if (has_long_planes(a)) {
    const DType compute = compute_dtype(a.dtype());
    return normalize_groups(a, groups, parameter("group_norm", weight, a.size(1), compute),
                            parameter("group_norm", bias, a.size(1), compute), eps);
  }
  Tensor out = normalize_rows("group_norm", vulkan::Rows::kLayerNorm, eps, a, length, {}, {},
                              centred(length, eps));
  if (weight.defined()) out = mul(out, to(by_channel(weight, a), a.dtype()));
  if (bias.defined()) out = add(out, to(by_channel(bias, a), a.dtype()));
  return out;
}

Tensor detail::batch_norm(const Tensor& a, const Tensor& running_mean, const Tensor& running_var,
                          const Tensor& weight, const Tensor& bias, bool training, double momentum,
                          double eps) {
  device_to_offer("batch_norm", {&a, &running_mean, &running_var, &weight, &bias});
  check_floating("batch_norm", a);
  check_channels("batch_norm", a, {&running_mean, &running_var, &weight, &bias});
  if (!training && (!running_mean.defined() || !running_var.defined()))
    throw InvalidArgument("batch_norm: without training it needs the running mean and variance");
  const DType compute = compute_dtype(a.dtype());
  Tensor mean = running_mean;
  Tensor variance = running_var;
  if (training) {
    DimVector dims;
    for (std::int64_t d = 0; d < a.dim(); ++d)
      if (d != 1) dims.push_back(d);
    const Tensor wide = to(a, compute);
    mean = ops::mean(wide, dims);
    variance = ops::var(wide, dims, 0);
    const double count = a.size(1) == 0 ? 0 : static_cast<double>(a.numel() / a.size(1));
    if (running_mean.defined()) add_(mul_(running_mean, 1 - momentum), mul(mean, momentum));
    if (running_var.defined())
      add_(mul_(running_var, 1 - momentum), mul(variance, momentum * count / (count - 1)));
  }
  // x * scale + shift: two passes whatever there is to apply.
  Tensor scale = rsqrt(add(to(variance, compute), eps));
  if (weight.defined()) scale = mul(scale, to(weight, compute));
  Tensor shift = neg(mul(to(mean, compute), scale));
  if (bias.defined()) shift = add(shift, to(bias, compute));
  if (has_long_planes(a)) return scaled_channels(a, scale, shift);
  const Tensor s = by_channel(scale, a), t = by_channel(shift, a);
  if (a.device() != Device{}) return to(add_(mul(to(a, compute), s), t), a.dtype());
  ElementwisePlan plan;
  plan.function = compute == DType::kF64 ? &scale_and_shift<double> : &scale_and_shift<float>;
  plan.input_count = 3;
  plan.input_dtypes = {compute, compute, compute};
  plan.result_dtype = compute;
  Tensor out = elementwise_result(a.sizes(), a.dtype(), Device{}, {&a, &s, &t});
  run_elementwise(plan, out, {&a, &s, &t});
  return out;
}

}  // namespace tenon::ops
