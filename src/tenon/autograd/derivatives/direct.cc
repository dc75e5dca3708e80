#include "tenon/autograd/derivatives/direct.h"

#include <algorithm>

#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/kernels/cpu/onednn_conv.h"
#include "tenon/ops/kernels/cpu/training_rows.h"

namespace tenon::autograd::direct {
namespace {

bool is_plain(const Tensor& t) {
  return t.dtype() == DType::kF32 && t.device() == Device{} && t.numel() > 0;
}

// Rows that one thread takes at a time: by sizes alone.
std::int64_t row_grain(std::int64_t length) {
  return std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, length));
}

// The elements are seen by nobody else, and lie as `like`'s do when it is contiguous.
bool can_overwrite(const Tensor& t) { return is_exclusive(t) && t.is_contiguous(); }

}  // namespace

Tensor conv_input(const Tensor& gradient, const Tensor& weight, IntList sizes,
                  const ops::ConvOptions& options) {
  if (!is_plain(gradient) || !is_plain(weight)) return {};
  const Tensor out = empty(sizes);
  const bool done = out.numel() > 0 && ops::cpu::onednn_conv2d_backward_input(
                                           out, contiguous(gradient), contiguous(weight), options);
  return done ? out : Tensor();
}

bool conv_weight(const Tensor& gradient, const Tensor& a, IntList sizes,
                 const ops::ConvOptions& options, bool with_bias, Tensor& weight, Tensor& bias) {
  if (!is_plain(gradient) || !is_plain(a)) return false;
  const Tensor of_weight = empty(sizes);
  const Tensor of_bias = with_bias ? empty({sizes[0]}) : Tensor();
  if (!ops::cpu::onednn_conv2d_backward_weight(of_weight, of_bias, contiguous(gradient),
                                               contiguous(a), options))
    return false;
  weight = of_weight;
  if (with_bias) bias = of_bias;
  return true;
}

Tensor max_pool(const Tensor& gradient, const Tensor& a, const ops::PoolOptions& options) {
  if (!is_plain(gradient) || !is_plain(a) || a.dtype() != gradient.dtype() ||
      options.padding.height != 0 || options.padding.width != 0)
    return {};
  const Tensor from = contiguous(a);
  const Tensor g = contiguous(gradient);
  const Tensor out = empty(a.sizes());
  const auto stride = [](std::int64_t given, std::int64_t kernel) {
    return given == 0 ? kernel : given;
  };
  const ops::cpu::TrainingRows::Plane plane = {a.size(-2),
                                               a.size(-1),
                                               g.size(-2),
                                               g.size(-1),
                                               options.kernel.height,
                                               options.kernel.width,
                                               stride(options.stride.height, options.kernel.height),
                                               stride(options.stride.width, options.kernel.width)};
  const std::int64_t size = plane.height * plane.width;
  const std::int64_t out_size = plane.out_height * plane.out_width;
  const auto run = ops::cpu::training_rows().max_pool_gradient;
  const auto* x = from.const_data_ptr<float>();
  const auto* dy = g.const_data_ptr<float>();
  auto* dx = out.data_ptr<float>();
  parallel_for(0, a.numel() / size, row_grain(size), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      run(dx + i * size, dy + i * out_size, x + i * size, plane);
  });
  return out;
}

Tensor softmax(const Tensor& gradient, const Tensor& result, std::int64_t dim) {
  const bool is_last = dim == -1 || dim == result.dim() - 1;
  if (!is_plain(gradient) || !is_plain(result) || !is_last || !result.is_contiguous()) return {};
  const Tensor g = contiguous(gradient);
  const Tensor out = empty(result.sizes());
  const std::int64_t length = result.size(-1);
  const auto run = ops::cpu::training_rows().softmax;
  const auto* dy = g.const_data_ptr<float>();
  const auto* y = result.const_data_ptr<float>();
  auto* dx = out.data_ptr<float>();
  parallel_for(0, result.numel() / length, row_grain(length),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i)
                   run(dx + i * length, dy + i * length, y + i * length, length, 1);
               });
  return out;
}

Tensor gelu_tanh(const Tensor& gradient, const Tensor& a) {
  if (!is_plain(gradient) || !is_plain(a) || !a.is_contiguous() || !gradient.is_contiguous())
    return {};
  const Tensor out = can_overwrite(gradient) ? gradient : empty(a.sizes());
  const auto run = ops::cpu::training_rows().gelu_tanh;
  const auto* dy = gradient.const_data_ptr<float>();
  const auto* x = a.const_data_ptr<float>();
  auto* dx = out.data_ptr<float>();
  parallel_for(0, a.numel(), 8192, [&](std::int64_t begin, std::int64_t end) {
    run(dx + begin, dy + begin, x + begin, end - begin);
  });
  return out;
}

}  // namespace tenon::autograd::direct
