// Plain loops, compiled once for each instruction set and vectorised by the compiler.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/autograd/derivatives/norm_kernels.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tenon/autograd/derivatives/norm_kernels.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/workspaces.h"
#include "tenon/ops/kernels/vulkan/device_kernels.h"
#include "tenon/ops/reduce.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

#ifndef TENON_AUTOGRAD_NORM_ROOM
#define TENON_AUTOGRAD_NORM_ROOM
namespace tenon::autograd {
namespace {

// On the meta device too, where they are the whole result.
NormGradients room_for(const Tensor& input, std::int64_t length, bool with_parameters = true) {
  if (!with_parameters) return {empty_like(input), {}, {}};
  const DType dtype = ops::compute_dtype(input.dtype());
  return {empty_like(input), empty({length}, dtype, input.device()),
          empty({length}, dtype, input.device())};
}

}  // namespace
}  // namespace tenon::autograd
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::autograd::HWY_NAMESPACE {
namespace {  // several files have types of one name here

constexpr std::int64_t kLanes = 16;

// Sums of several terms at once: term(i, add) calls add(k, value) for the k-th sum. Lanes are added
// up in a fixed order, so the result depends on nothing but the elements.
template <typename T, std::size_t kSums, typename Term>
void lane_sums(std::int64_t count, double* sums, Term&& term) {
  if (count < kLanes) {  // a lane each
    for (std::int64_t i = 0; i < count; ++i)
      term(i, [&](std::size_t k, T value) { sums[k] += static_cast<double>(value); });
    return;
  }
  T lanes[kSums][kLanes] = {};
  const std::int64_t whole = count / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes)
    for (std::int64_t l = 0; l < kLanes; ++l)
      term(i + l, [&](std::size_t k, T value) { lanes[k][l] += value; });
  for (std::int64_t i = whole; i < count; ++i)
    term(i, [&](std::size_t k, T value) { lanes[k][i - whole] += value; });
  for (std::size_t k = 0; k < kSums; ++k) {
    constexpr std::int64_t kParts = 4;  // so that no sum waits for another
    double parts[kParts] = {};
    for (std::int64_t l = 0; l < kLanes; l += kParts)
      for (std::int64_t p = 0; p < kParts; ++p) parts[p] += static_cast<double>(lanes[k][l + p]);
    sums[k] += (parts[0] + parts[1]) + (parts[2] + parts[3]);
  }
}

template <typename T>
struct Row {
  T mean, scale;
};

template <typename T>
Row<T> statistics_of(const T* x, std::int64_t length, double eps, bool centred) {
  const double n = static_cast<double>(length);
  double sums[1] = {};
  if (centred) lane_sums<T, 1>(length, sums, [&](std::int64_t i, auto&& add) { add(0, x[i]); });
  const T mean = static_cast<T>(sums[0] / n);
  double squares[1] = {};
  lane_sums<T, 1>(length, squares,
                  [&](std::int64_t i, auto&& add) { add(0, (x[i] - mean) * (x[i] - mean)); });
  return {mean, static_cast<T>(1 / std::sqrt(squares[0] / n + eps))};
}

template <typename T>
const T* data_or_null(const Tensor& t) {
  return t.defined() ? t.const_data_ptr<T>() : nullptr;
}

template <bool kWeighted, typename T>
void row_backward(const T* g, const T* x, const T* weight, T* out, std::int64_t length,
                  const Row<T>& row, bool centred) {
  double sums[2] = {};
  lane_sums<T, 2>(length, sums, [&](std::int64_t i, auto&& add) {
    const T weighted = kWeighted ? g[i] * weight[i] : g[i];
    add(0, weighted);
    add(1, weighted * (x[i] - row.mean) * row.scale);
  });
  const double n = static_cast<double>(length);
  const T first = centred ? static_cast<T>(sums[0] / n) : T(0);
  const T second = static_cast<T>(sums[1] / n);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < length; ++i) {
    const T weighted = kWeighted ? g[i] * weight[i] : g[i];
    out[i] = row.scale * (weighted - first - (x[i] - row.mean) * row.scale * second);
  }
}

template <typename T>
NormGradients rows(const Tensor& gradient, const Tensor& input, const Tensor& weight,
                   std::int64_t length, double eps, bool centred, bool with_parameters) {
  const NormGradients made = room_for(input, length, with_parameters);
  const std::int64_t count = length == 0 ? 0 : input.numel() / length;
  const T* g = gradient.const_data_ptr<T>();
  const T* x = input.const_data_ptr<T>();
  const T* w = data_or_null<T>(weight);
  T* out = made.input.data_ptr<T>();
  std::vector<Row<T>> statistics(static_cast<std::size_t>(count));
  parallel_for(0, count, std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, length)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t r = begin; r < end; ++r) {
                   Row<T>& row = statistics[static_cast<std::size_t>(r)];
                   row = statistics_of(x + r * length, length, eps, centred);
                   const auto backward =
                       w == nullptr ? &row_backward<false, T> : &row_backward<true, T>;
                   backward(g + r * length, x + r * length, w, out + r * length, length, row,
                            centred);
                 }
               });
  if (!with_parameters) return made;
  T* of_weight = made.weight.data_ptr<T>();
  T* of_bias = made.bias.data_ptr<T>();
  parallel_for(0, length, 64, [&](std::int64_t begin, std::int64_t end) {
    std::fill(of_weight + begin, of_weight + end, T(0));
    std::fill(of_bias + begin, of_bias + end, T(0));
    for (std::int64_t r = 0; r < count; ++r) {
      const Row<T> row = statistics[static_cast<std::size_t>(r)];
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        const T gi = g[r * length + i];
        of_weight[i] += gi * (x[r * length + i] - row.mean) * row.scale;
        of_bias[i] += gi;
      }
    }
  });
  return made;
}

template <typename T>
void channel_backward(const T* g, const T* x, T* out, std::int64_t batch, std::int64_t stride,
                      std::int64_t stretch, T weight, const Row<T>& row, bool own_statistics,
                      double* sums) {
  for (std::int64_t n = 0; n < batch; ++n)
    lane_sums<T, 2>(stretch, sums, [&](std::int64_t i, auto&& add) {
      const T gi = g[n * stride + i];
      add(0, gi);
      add(1, gi * (x[n * stride + i] - row.mean) * row.scale);
    });
  const double count = static_cast<double>(batch * stretch);
  const T first = own_statistics ? static_cast<T>(sums[0] / count) : T(0);
  const T second = own_statistics ? static_cast<T>(sums[1] / count) : T(0);
  for (std::int64_t n = 0; n < batch; ++n)
#pragma GCC ivdep
    for (std::int64_t i = n * stride; i < n * stride + stretch; ++i)
      out[i] = weight * row.scale * (g[i] - first - (x[i] - row.mean) * row.scale * second);
}

// A channel's elements of all images: where they lie, or widened, one image after the other.
template <typename T>
class ChannelStretches {
 public:
  ChannelStretches(const Tensor& of, std::int64_t stretch, T* room)
      : of_(of),
        stretch_(stretch),
        stride_(of.size(1) * stretch),
        room_(of.dtype() == dtype_of<T>() ? nullptr : room) {}
  std::int64_t stride() const { return room_ == nullptr ? stride_ : stretch_; }
  const T* read(std::int64_t channel) const {
    if (room_ == nullptr) return of_.const_data_ptr<T>() + channel * stretch_;
    convert(channel, true);
    return room_;
  }
  T* to_write(std::int64_t channel) const {
    return room_ == nullptr ? of_.data_ptr<T>() + channel * stretch_ : room_;
  }
  void write(std::int64_t channel) const {
    if (room_ != nullptr) convert(channel, false);
  }

 private:
  void convert(std::int64_t channel, bool reads) const {
    const auto item = static_cast<std::int64_t>(of_.item_size());
    const DType here = dtype_of<T>(), there = of_.dtype();
    auto* const data = static_cast<char*>(const_cast<void*>(of_.const_data_ptr()));
    for (std::int64_t n = 0; n < of_.size(0); ++n) {
      char* const at = data + (n * stride_ + channel * stretch_) * item;
      T* const wide = room_ + n * stretch_;
      if (reads)
        tenon::detail::convert_elements(here, wide, there, at, stretch_);
      else
        tenon::detail::convert_elements(there, at, here, wide, stretch_);
    }
  }
  const Tensor& of_;
  const std::int64_t stretch_, stride_;
  T* const room_;
};

template <typename T>
NormGradients channels(const Tensor& gradient, const Tensor& input, const Tensor& weight,
                       const Tensor& mean, const Tensor& variance, double eps) {
  const std::int64_t count = input.size(1), batch = input.size(0);
  const NormGradients made = room_for(input, count);
  const std::int64_t stretch = input.numel() == 0 ? 0 : input.numel() / (batch * count);
  const double elements = static_cast<double>(batch * stretch);
  T* of_weight = made.weight.data_ptr<T>();
  T* of_bias = made.bias.data_ptr<T>();
  const T* w = data_or_null<T>(weight);
  const T* given_mean = data_or_null<T>(mean);
  const T* given_variance = data_or_null<T>(variance);
  const bool is_narrow = input.dtype() != dtype_of<T>();
  const std::int64_t room = is_narrow ? batch * stretch : 0;
  ops::cpu::Workspaces rooms(static_cast<std::size_t>(3 * room) * sizeof(T), count);
  parallel_for(0, count, 1, [&](std::int64_t begin, std::int64_t end) {
    char* const taken = rooms.take();
    T* const at = reinterpret_cast<T*>(taken);
    const ChannelStretches<T> inputs(input, stretch, at), gradients(gradient, stretch, at + room);
    const ChannelStretches<T> outs(made.input, stretch, at + 2 * room);
    const std::int64_t stride = inputs.stride();
    for (std::int64_t c = begin; c < end; ++c) {
      const T* const x = inputs.read(c);
      double total[1] = {}, squares[1] = {};
      Row<T> row;
      if (given_mean == nullptr) {
        for (std::int64_t n = 0; n < batch; ++n)
          lane_sums<T, 1>(stretch, total,
                          [&](std::int64_t i, auto&& add) { add(0, x[n * stride + i]); });
        row.mean = static_cast<T>(total[0] / elements);
        for (std::int64_t n = 0; n < batch; ++n)
          lane_sums<T, 1>(stretch, squares, [&](std::int64_t i, auto&& add) {
            const T d = x[n * stride + i] - row.mean;
            add(0, d * d);
          });
        row.scale = static_cast<T>(1 / std::sqrt(squares[0] / elements + eps));
      } else {
        row.mean = given_mean[c];
        row.scale = static_cast<T>(1 / std::sqrt(static_cast<double>(given_variance[c]) + eps));
      }
      double sums[2] = {};
      channel_backward(gradients.read(c), x, outs.to_write(c), batch, stride, stretch,
                       w == nullptr ? T(1) : w[c], row, given_mean == nullptr, sums);
      outs.write(c);
      of_bias[c] = static_cast<T>(sums[0]);
      of_weight[c] = static_cast<T>(sums[1]);
    }
    rooms.give(taken);
  });
  return made;
}

// Each group of channels of each image is a row; a channel's share of its two sums is that of the
// parameters' gradients, too.
template <typename T>
NormGradients groups(const Tensor& gradient, const Tensor& input, const Tensor& weight,
                     std::int64_t groups, double eps) {
  const std::int64_t channels = input.size(1), together = channels / groups;
  const NormGradients made = room_for(input, channels);
  const std::int64_t rows = input.size(0) * groups, stretch = input.numel() / (rows * together);
  const std::int64_t length = together * stretch;
  const T* w = data_or_null<T>(weight);
  T* out = made.input.data_ptr<T>();
  std::vector<double> sums(static_cast<std::size_t>(2 * rows * together));
  parallel_for(0, rows, std::max<std::int64_t>(1, 16384 / length), [&](std::int64_t begin,
                                                                       std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* const x = input.const_data_ptr<T>() + r * length;
      const T* const g = gradient.const_data_ptr<T>() + r * length;
      const Row<T> row = statistics_of(x, length, eps, true);
      double* const of_row = sums.data() + 2 * r * together;
      double totals[2] = {};
      const auto weight_of = [&](std::int64_t c) {
        return w == nullptr ? T(1) : w[r % groups * together + c];
      };
      for (std::int64_t c = 0; c < together; ++c) {
        const T* const gc = g + c * stretch;
        const T* const xc = x + c * stretch;
        lane_sums<T, 2>(stretch, of_row + 2 * c, [&](std::int64_t i, auto&& add) {
          add(0, gc[i]);
          add(1, gc[i] * (xc[i] - row.mean) * row.scale);
        });
        for (int k = 0; k < 2; ++k)
          totals[k] += of_row[2 * c + k] * static_cast<double>(weight_of(c));
      }
      const T first = static_cast<T>(totals[0] / static_cast<double>(length));
      const T second = static_cast<T>(totals[1] / static_cast<double>(length));
      for (std::int64_t c = 0; c < together; ++c) {
        const T by = weight_of(c);
        T* const to = out + r * length;
#pragma GCC ivdep
        for (std::int64_t i = c * stretch; i < (c + 1) * stretch; ++i)
          to[i] = row.scale * (by * g[i] - first - (x[i] - row.mean) * row.scale * second);
      }
    }
  });
  for (std::int64_t c = 0; c < channels; ++c) {
    double of_bias = 0, of_weight = 0;
    for (std::int64_t n = 0; n < input.size(0); ++n) {
      of_bias += sums[static_cast<std::size_t>(2 * (n * channels + c))];
      of_weight += sums[static_cast<std::size_t>(2 * (n * channels + c) + 1)];
    }
    made.bias.data_ptr<T>()[c] = static_cast<T>(of_bias);
    made.weight.data_ptr<T>()[c] = static_cast<T>(of_weight);
  }
  return made;
}

}  // namespace

NormGradients rows_on_host(const Tensor& gradient, const Tensor& input, const Tensor& weight,
                           std::int64_t length, double eps, bool centred, bool with_parameters) {
  const auto run = input.dtype() == DType::kF64 ? &rows<double> : &rows<float>;
  return run(gradient, input, weight, length, eps, centred, with_parameters);
}
NormGradients groups_on_host(const Tensor& gradient, const Tensor& input, const Tensor& weight,
                             std::int64_t count, double eps) {
  const auto run = input.dtype() == DType::kF64 ? &groups<double> : &groups<float>;
  return run(gradient, input, weight, count, eps);
}
NormGradients channels_on_host(const Tensor& gradient, const Tensor& input, const Tensor& weight,
                               const Tensor& mean, const Tensor& variance, double eps) {
  const auto run = input.dtype() == DType::kF64 ? &channels<double> : &channels<float>;
  return run(gradient, input, weight, mean, variance, eps);
}

}  // namespace tenon::autograd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::autograd {

HWY_EXPORT(rows_on_host);
HWY_EXPORT(groups_on_host);
HWY_EXPORT(channels_on_host);

namespace {

// One kernel for the input's gradient, and a sum for each of the others.
std::optional<NormGradients> rows_on_device(const Tensor& gradient, const Tensor& input,
                                            const Tensor& weight, std::int64_t length, double eps,
                                            bool centred) {
  NormGradients made{empty_like(input), {}, {}};
  const Tensor products = weight.defined() ? empty_like(input) : Tensor();
  if (!vulkan::rows(centred ? vulkan::Rows::kLayerNormBackward : vulkan::Rows::kRmsNormBackward,
                    made.input, length, 1, input, gradient, weight, eps, products))
    return std::nullopt;
  const auto over_rows = [&](const Tensor& t) { return ops::sum(t.view({-1, length}), {0}); };
  if (weight.defined()) made.weight = over_rows(products);
  if (centred) made.bias = over_rows(gradient);
  return made;
}

}  // namespace

std::optional<NormGradients> rows_backward(const Tensor& gradient, const Tensor& input,
                                           const Tensor& weight, std::int64_t length, double eps,
                                           bool centred, bool with_parameters) {
  if (input.is_meta()) return room_for(input, length, with_parameters);
  if (vulkan::holds(input))
    return rows_on_device(gradient, input, weight, length, eps, centred);
  if (input.device().type != DeviceType::kCpu) return std::nullopt;
  return HWY_DYNAMIC_DISPATCH(rows_on_host)(gradient, input, weight, length, eps, centred,
                                            with_parameters);
}

std::optional<NormGradients> groups_backward(const Tensor& gradient, const Tensor& input,
                                             const Tensor& weight, std::int64_t groups,
                                             double eps) {
  if (input.is_meta()) return room_for(input, input.size(1));
  if (input.device() == Device{})
    return HWY_DYNAMIC_DISPATCH(groups_on_host)(gradient, input, weight, groups, eps);
  if (!vulkan::holds(input)) return std::nullopt;
  NormGradients made{empty_like(input), {}, {}};
  const Tensor products = weight.defined() ? empty_like(input) : Tensor();
  if (!vulkan::groups_backward(made.input, products, input, gradient, weight, groups, eps))
    return std::nullopt;
  const auto by_channel = [&](const Tensor& t) {
    return ops::sum(t.view({input.size(0), input.size(1), -1}), {0, 2});
  };
  if (weight.defined()) made.weight = by_channel(products);
  made.bias = by_channel(gradient);
  return made;
}

std::optional<NormGradients> channels_backward(const Tensor& gradient, const Tensor& input,
                                               const Tensor& weight, const Tensor& mean,
                                               const Tensor& variance, double eps) {
  if (input.is_meta()) return room_for(input, input.size(1));
  if (vulkan::holds(input)) {
    const NormGradients made = room_for(input, input.size(1));
    if (vulkan::channels_backward(made.input, made.weight, made.bias, input, gradient, weight,
                                  mean, variance, eps))
      return made;
    return std::nullopt;
  }
  if (input.device().type != DeviceType::kCpu) return std::nullopt;
  return HWY_DYNAMIC_DISPATCH(channels_on_host)(gradient, input, weight, mean, variance, eps);
}

}  // namespace tenon::autograd
#endif
