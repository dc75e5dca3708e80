// Arithmetic on Vulkan devices. A common kernel offers its work here before it computes on the
// host; what is not taken runs there, in the memory that both share (Note [Host access] in
// tensor/host_access.h). Each queues its work on the current stream; or it gives false, and nothing
// has happened, where there is no such kernel: other dtypes, what the device has no arithmetic for,
// 2^31 elements and more. Requires: tensors on one Vulkan device; targets share no memory with
// inputs.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>

#include "tenon/device/vulkan/vulkan_backend.h"
#include "tenon/ops/conv.h"
#include "tenon/ops/reduce.h"
#include "tenon/tensor/tensor.h"

namespace tenon::vulkan {

// Whether a kernel's loop may have so many rounds: lavapipe ends each loop after 65,535 of them
// without an error.
inline bool may_loop(const VulkanBackend& backend, std::int64_t rounds) {
  return !backend.abilities().on_host || rounds <= 65535;
}

// Whether kernels for subgroups of 8 lanes run and pay: they take more registers than a GPU has for
// an invocation.
inline bool has_lanes(const VulkanBackend& backend) {
  const VulkanAbilities& has = backend.abilities();
  return has.on_host && has.lanes == 8 && has.integers;
}

// Strides of a matrix, in elements.
struct MatrixStrides {
  std::int64_t row = 0;
  std::int64_t column = 0;
  std::int64_t batch = 0;
};

// target [batch, m, n], contiguous, = a b + beta target; beta is 0 or 1.
bool matmul(const Tensor& target, std::int64_t m, std::int64_t n, std::int64_t k, const Tensor& a,
            const MatrixStrides& a_strides, const Tensor& b, const MatrixStrides& b_strides,
            double beta);

// In which dtype the device gathers reductions of `dtype`; nothing where it does not.
std::optional<DType> gather_dtype(DType dtype, Device device);

// ops::detail::gather: one number for each kept element. `result` and the shifts are of
// gather_dtype.
bool gather(ops::Gather kind, const Tensor& result, const Tensor& a, std::uint64_t reduced,
            const Tensor& shifts);

// The places of the largest or smallest elements along the reduced dimensions, i64.
bool arg_extreme(bool largest, const Tensor& result, const Tensor& a, std::uint64_t reduced);

enum class Rows : std::uint32_t {
  kSoftmax,
  kLogSoftmax,
  kSoftmaxBackward,     // from the result (a) and the gradient (b)
  kLogSoftmaxBackward,
  kLayerNorm,  // with weight (b) and bias (c), or neither
  kRmsNorm,
  kCumsum,
  kCumprod,
  kLayerNormBackward,  // from the input (a), the gradient (b) and the weight (c), or no weight
  kRmsNormBackward,
  kGroupNormBackward,  // by groups_backward
  kBatchNormBackward,  // by channels_backward
};
// Lines of dense tensors seen as [outer, length, inner]; norms of inner 1. All of one dtype.
// `products`, of norms' derivatives with a weight: those of the gradient and the normalised input,
// whose sum over the lines is the weight's gradient.
bool rows(Rows kind, const Tensor& target, std::int64_t length, std::int64_t inner,
          const Tensor& a, const Tensor& b = {}, const Tensor& c = {}, double eps = 0,
          const Tensor& products = {});

// group_norm's derivative by the input, dense [images, channels, ...]. `products` as above, of the
// input's shape.
bool groups_backward(const Tensor& target, const Tensor& products, const Tensor& input,
                     const Tensor& gradient, const Tensor& weight, std::int64_t groups,
                     double eps);
// batch_norm's derivatives by the input, so too, and by the weight and the bias of each channel.
// Without `mean` the statistics are the batch's own.
bool channels_backward(const Tensor& target, const Tensor& of_weight, const Tensor& of_bias,
                       const Tensor& input, const Tensor& gradient, const Tensor& weight,
                       const Tensor& mean, const Tensor& variance, double eps);

// The first `wanted` of each row of a dense [rows, length], stably in order, and where they were
// (i64). Takes time by the square of the length: false for long rows.
bool sort(const Tensor& values, const Tensor& indices, const Tensor& rows, std::int64_t wanted,
          bool descending);

// target = elements of `source` that the index names along `dim`; the index (i64) and the source
// are seen in the target's shape, but for the source's size there.
bool take(const char* what, const Tensor& target, const Tensor& source, std::int64_t dim,
          const Tensor& index);
// Adds the source's elements, in the order of `dim`, to those of the target that the index names;
// the index is seen in the source's shape.
bool add_at(const char* what, const Tensor& target, std::int64_t dim, const Tensor& index,
            const Tensor& source);

// A kernel that slides over images of height by width and takes out_height by out_width places.
struct Windows {
  std::int64_t height = 0, width = 0;
  std::int64_t out_height = 0, out_width = 0;
  ops::Pair kernel = 1, stride = 1, padding = 0, dilation = 1;
  bool is_adaptive = false;     // the places share all elements out among them
  bool counts_padding = false;  // in averages
};
bool is_one_by_one(const Windows& w);      // one step apart, without padding
bool is_three_by_three(const Windows& w);  // one step apart, padded by one
enum class WindowWork : std::uint32_t {
  kToColumns,     // [channels, kernel places; images, places] of some channels
  kToImage,       // its transpose: each element's sum
  kMaximum,       // of each window of each plane
  kMaximumPlace,  // where in its plane that is, i64
  kAverage,
  kSpread,  // the transpose of kAverage
  kWeigh,   // a convolution in groups: first_channel counts all filters, channels a group's
};
// Images are dense [images, all_channels, height, width], f32 or f64; for pooling, each plane is an
// image of one channel.
bool windows(WindowWork work, const Tensor& target, const Tensor& source, const Windows& w,
             std::int64_t images, std::int64_t all_channels = 1, std::int64_t first_channel = 0,
             std::int64_t channels = 1, const Tensor& weight = {});

// target [images, filters, places] = the convolution of dense images [images, channels, height,
// width] with a dense weight [filters, channels, kernel places], plus a bias of the filters; f32.
// Only for windows of one, and of three by three where rows are multiples of four.
bool convolve(const Tensor& target, const Tensor& weight, const Tensor& images, const Windows& w,
              const Tensor& bias = {});
bool reads_windows(Device device);  // whether it takes any

// target [filters, channels, 3, 3] = the weight's gradient from that of the places [images,
// filters, height, width] and the images, both dense; f32. Only for windows of three by three that
// take each element's place, and where has_lanes().
bool correlate(const Tensor& target, const Tensor& gradient, const Tensor& images,
               const Windows& w);

// The same, in groups, for all windows, and their gradients: by copies of the images, each shifted
// as one column of the kernel sees them. Only f32, where has_lanes() and that pays. The weight is
// [filters, channels of a group, kernel]. What is false may have written a part of the target.
bool convolve_by_shifts(const Tensor& target, const Tensor& weight, const Tensor& images,
                        Windows w, std::int64_t groups, const Tensor& bias = {});
// target, of the images' shape, from the places [images, filters, out_height, out_width].
bool convolve_back_by_shifts(const Tensor& target, const Tensor& weight, const Tensor& places,
                             Windows w, std::int64_t groups);
// target, of the weight's shape, from the places' gradient and the images.
bool correlate_by_shifts(const Tensor& target, const Tensor& gradient, const Tensor& images,
                         Windows w, std::int64_t groups);

// A step of an optimiser over dense tensors of one dtype, f32 or f64. The numbers are those that
// update.comp names, 0 behind them; state that the kind has none of is undefined. The factor, an
// f32 there, multiplies the scale: where that is not above 0 then, nothing changes. It may be
// undefined. `next` gives the numbers of later runs where the step is captured.
enum class UpdateKind : std::uint32_t { kSgd, kMomentum, kNesterov, kAdam };
using UpdateNumbers = std::array<double, 9>;
bool update(UpdateKind kind, const Tensor& parameter, const Tensor& gradient, const Tensor& first,
            const Tensor& second, const Tensor& factor, const UpdateNumbers& numbers,
            const std::function<UpdateNumbers()>& next);

}  // namespace tenon::vulkan
