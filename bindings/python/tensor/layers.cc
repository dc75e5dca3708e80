// What models are made of, as functions: products with weights, convolutions, normalisation,
// pooling, attention, losses.
#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include "parts.h"
#include "tenon/autograd/autograd.h"
#include "tenon/base/error.h"
#include "tenon/nn/init.h"
#include "tenon/ops/operators.h"

namespace tenon::python {
namespace {

Tensor tensor_or_none(nb::handle given) {
  return given.is_none() ? Tensor() : tensor_of(given);
}

// One number for both, or a pair (height, width).
ops::Pair pair_of(const Sizes& sizes, const char* what) {
  if (sizes.list.size() == 1) return ops::Pair(sizes.list[0]);
  if (sizes.list.size() == 2) return ops::Pair(sizes.list[0], sizes.list[1]);
  throw InvalidArgument(fmt::format("{}: {} numbers; give one, or a pair (height, width)", what,
                                    sizes.list.size()));
}

// About how many elements a product or convolution touches.
std::int64_t work_of(const Tensor& a, const Tensor& weight) {
  return a.numel() + weight.numel() * 4;
}

void bind_convolutions(nb::module_& module) {
  const auto convolution = [&](const char* name, const ops::op::ConvOperator& op, bool width_only,
                               const char* about) {
    module.def(name, [&op, name, width_only](const Tensor& x, const Tensor& weight, nb::handle bias,
                                             Sizes stride, Sizes padding, Sizes dilation, std::int64_t groups) {
      const auto both = [&](const Sizes& sizes) {
        return width_only && sizes.list.size() == 1 ? ops::Pair(1, sizes.list[0]) : pair_of(sizes, name);
      };
      ops::ConvOptions options;
      options.stride = both(stride);
      options.padding = width_only ? ops::Pair(0, pair_of(padding, name).width) : both(padding);
      options.dilation = both(dilation);
      options.groups = groups;
      const Tensor b = tensor_or_none(bias);
      return wrap(worked(work_of(x, weight), [&] { return op(x, weight, b, options); }));
    }, nb::arg("x"), nb::arg("weight"), nb::arg("bias") = nb::none(), nb::arg("stride") = 1,
               nb::arg("padding") = 0, nb::arg("dilation") = 1, nb::arg("groups") = 1, about);
  };
  convolution("conv2d", ops::op::conv2d, false, "[N, C, H, W] by weight [out, C / groups, h, w].");
  convolution("conv1d", ops::op::conv1d, true, "[N, C, L] by weight [out, C / groups, k].");
  module.def("conv_transpose2d", [](const Tensor& x, const Tensor& weight, nb::handle bias, Sizes stride,
                                    Sizes padding, Sizes output_padding, std::int64_t groups, Sizes dilation) {
    ops::ConvOptions options;
    options.stride = pair_of(stride, "conv_transpose2d");
    options.padding = pair_of(padding, "conv_transpose2d");
    options.output_padding = pair_of(output_padding, "conv_transpose2d");
    options.dilation = pair_of(dilation, "conv_transpose2d");
    options.groups = groups;
    const Tensor b = tensor_or_none(bias);
    return wrap(worked(work_of(x, weight), [&] { return ops::conv_transpose2d(x, weight, b, options); }));
  }, nb::arg("x"), nb::arg("weight"), nb::arg("bias") = nb::none(), nb::arg("stride") = 1,
             nb::arg("padding") = 0, nb::arg("output_padding") = 0, nb::arg("groups") = 1,
             nb::arg("dilation") = 1, "The transposed operation: weight [C, out / groups, h, w].");
  module.def("linear", [](const Tensor& x, const Tensor& weight, nb::handle bias) {
    const Tensor b = tensor_or_none(bias);
    return wrap(worked(work_of(x, weight), [&] { return ops::linear(x, weight, b); }));
  }, nb::arg("x"), nb::arg("weight"), nb::arg("bias") = nb::none(),
             "x [..., in] by weight [out, in], transposed, plus bias [out].");
}

void bind_pools(nb::module_& module) {
  const auto pool = [&](const char* name, Tensor (*function)(const Tensor&, const ops::PoolOptions&),
                        const char* about) {
    module.def(name, [function, name](const Tensor& x, Sizes kernel, Maybe<Sizes> stride, Sizes padding,
                                      bool count) {
      ops::PoolOptions options;
      options.kernel = pair_of(kernel, name);
      if (stride) options.stride = pair_of(*stride, name);
      options.padding = pair_of(padding, name);
      options.count_padding = count;
      return wrap(worked(x.numel(), [&] { return function(x, options); }));
    }, nb::arg("x"), nb::arg("kernel_size"), nb::arg("stride") = nb::none(), nb::arg("padding") = 0,
               nb::arg("count_include_pad") = true, about);
  };
  pool("max_pool2d", &ops::max_pool2d, "The largest element of each window.");
  pool("avg_pool2d", &ops::avg_pool2d, "The mean of each window.");
  module.def("adaptive_avg_pool2d", [](const Tensor& x, Sizes size) {
    const ops::Pair to = pair_of(size, "adaptive_avg_pool2d");
    return wrap(worked(x.numel(), [&] { return ops::adaptive_avg_pool2d(x, to); }));
  }, nb::arg("x"), nb::arg("output_size"), "Means, to a size.");
}

void bind_normalisation(nb::module_& module) {
  module.def("layer_norm", [](const Tensor& x, Sizes shape, nb::handle weight, nb::handle bias, double eps) {
    const Tensor w = tensor_or_none(weight), b = tensor_or_none(bias);
    return wrap(worked(x.numel(), [&] { return ops::layer_norm(x, shape, w, b, eps); }));
  }, nb::arg("x"), nb::arg("normalized_shape"), nb::arg("weight") = nb::none(),
             nb::arg("bias") = nb::none(), nb::arg("eps") = 1e-5, "Over the last dimensions.");
  module.def("rms_norm", [](const Tensor& x, Sizes shape, nb::handle weight, double eps) {
    const Tensor w = tensor_or_none(weight);
    return wrap(worked(x.numel(), [&] { return ops::rms_norm(x, shape, w, eps); }));
  }, nb::arg("x"), nb::arg("normalized_shape"), nb::arg("weight") = nb::none(), nb::arg("eps") = 1e-6,
             "x / sqrt(mean(x^2) + eps) over the last dimensions.");
  module.def("group_norm", [](const Tensor& x, std::int64_t groups, nb::handle weight, nb::handle bias, double eps) {
    const Tensor w = tensor_or_none(weight), b = tensor_or_none(bias);
    return wrap(worked(x.numel(), [&] { return ops::group_norm(x, groups, w, b, eps); }));
  }, nb::arg("x"), nb::arg("num_groups"), nb::arg("weight") = nb::none(), nb::arg("bias") = nb::none(),
             nb::arg("eps") = 1e-5, "Over groups of channels (dimension 1).");
  module.def("batch_norm", [](const Tensor& x, nb::handle mean, nb::handle var, nb::handle weight,
                              nb::handle bias, bool training, double momentum, double eps) {
    const Tensor m = tensor_or_none(mean), v = tensor_or_none(var);
    const Tensor w = tensor_or_none(weight), b = tensor_or_none(bias);
    return wrap(worked(x.numel(), [&] { return ops::batch_norm(x, m, v, w, b, training, momentum, eps); }));
  }, nb::arg("x"), nb::arg("running_mean").none(), nb::arg("running_var").none(), nb::arg("weight") = nb::none(),
             nb::arg("bias") = nb::none(), nb::arg("training") = false, nb::arg("momentum") = 0.1,
             nb::arg("eps") = 1e-5, "By channel (dimension 1).");
  module.def("scaled_dot_product_attention", [](const Tensor& q, const Tensor& k, const Tensor& v,
                                                nb::handle mask, bool causal, std::optional<double> scale) {
    const Tensor m = tensor_or_none(mask);
    return wrap(worked(q.numel() * 16, [&] { return ops::scaled_dot_product_attention(q, k, v, m, causal, scale); }));
  }, nb::arg("query"), nb::arg("key"), nb::arg("value"), nb::arg("attn_mask") = nb::none(),
             nb::arg("is_causal") = false, nb::arg("scale") = nb::none(), "softmax(query key^T * scale + mask) value.");
}

ops::Reduction reduction_of(const std::string& name) {
  if (name == "mean") return ops::Reduction::kMean;
  if (name == "sum") return ops::Reduction::kSum;
  if (name == "none") return ops::Reduction::kNone;
  throw InvalidArgument("reduction=\"" + name + "\": give \"mean\", \"sum\" or \"none\"");
}

void bind_losses(nb::module_& module) {
  module.def("cross_entropy", [](const Tensor& logits, const Tensor& target, const std::string& reduction,
                                 std::int64_t ignore_index, double smoothing) {
    const auto how = reduction_of(reduction);
    return wrap(worked(logits.numel(), [&] { return ops::cross_entropy(logits, target, how, ignore_index, smoothing); }));
  }, nb::arg("input"), nb::arg("target"), nb::arg("reduction") = "mean", nb::arg("ignore_index") = -100,
             nb::arg("label_smoothing") = 0.0, "Of logits [N, C, ...] and classes [N, ...].");
  module.def("nll_loss", [](const Tensor& input, const Tensor& target, const std::string& reduction, std::int64_t ignore_index) {
    const auto how = reduction_of(reduction);
    return wrap(worked(input.numel(), [&] { return ops::nll_loss(input, target, how, ignore_index); }));
  }, nb::arg("input"), nb::arg("target"), nb::arg("reduction") = "mean", nb::arg("ignore_index") = -100,
             "Of logarithms of probabilities [N, C, ...] and classes [N, ...].");
  const auto pair = [&](const char* name, const ops::op::PairLossOperator& op, const char* about) {
    module.def(name, [&op](const Tensor& a, const Tensor& b, const std::string& reduction) {
      const auto how = reduction_of(reduction);
      return wrap(worked(a.numel(), [&] { return op(a, b, how); }));
    }, nb::arg("input"), nb::arg("target"), nb::arg("reduction") = "mean", about);
  };
  pair("mse_loss", ops::op::mse_loss, "Squared differences.");
  pair("l1_loss", ops::op::l1_loss, "Absolute differences.");
  pair("binary_cross_entropy_with_logits", ops::op::binary_cross_entropy_with_logits, "Of logits and probabilities.");
  module.def("huber_loss", [](const Tensor& a, const Tensor& b, const std::string& reduction, double delta) {
    const auto how = reduction_of(reduction);
    return wrap(worked(a.numel(), [&] { return ops::huber_loss(a, b, how, delta); }));
  }, nb::arg("input"), nb::arg("target"), nb::arg("reduction") = "mean", nb::arg("delta") = 1.0,
             "Squared differences up to delta, absolute ones beyond.");
}

}  // namespace

void bind_layers(nb::module_& module) {
  bind_convolutions(module);
  bind_pools(module);
  bind_normalisation(module);
  bind_losses(module);
  module.def("kaiming_uniform_", [](nb::handle weight, double gain) {
    nn::kaiming_uniform_(tensor_of(weight), gain);
    return again(weight);
  }, nb::arg("weight"), nb::arg("gain"), "Uniform within gain * sqrt(3 / fan_in), in place.");
  module.def("xavier_uniform_", [](nb::handle weight, double gain) {
    nn::xavier_uniform_(tensor_of(weight), gain);
    return again(weight);
  }, nb::arg("weight"), nb::arg("gain") = 1.0, "Uniform within gain * sqrt(6 / (fan_in + fan_out)), in place.");
}

}  // namespace tenon::python
