
#include "tenon/autograd/derivatives/direct.h"
#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/derivatives/install.h"

namespace tenon::autograd {
namespace {

using namespace ops;

// The gradient of a convolution's input: the transposed convolution, padded to the input's size.
Tensor input_gradient(const Tensor& g, const Tensor& weight, IntList sizes, const ConvOptions& o) {
  if (numel_of(sizes) == 0) return zeros(sizes, g.dtype(), g.device());
  ConvOptions back = o;
  const auto missing = [&](std::size_t d, std::int64_t stride, std::int64_t padding,
                           std::int64_t dilation) {
    return sizes[d] -
           ((g.sizes()[d] - 1) * stride - 2 * padding + dilation * (weight.sizes()[d] - 1) + 1);
  };
  back.output_padding = {missing(2, o.stride.height, o.padding.height, o.dilation.height),
                         missing(3, o.stride.width, o.padding.width, o.dilation.width)};
  return conv_transpose2d(g, weight, {}, back);
}

// The gradient of its weight: the input convolved with the gradient, batch and channels having
// changed places, and stride and dilation, too.
Tensor weight_gradient(const Tensor& g, const Tensor& a, IntList sizes, const ConvOptions& o) {
  if (!formulas_recorded()) return ops::detail::conv2d_weight_gradient(g, a, sizes, o);
  ConvOptions across;
  across.stride = o.dilation;
  across.dilation = o.stride;
  across.padding = o.padding;
  std::vector<Tensor> groups;
  for (std::int64_t i = 0; i < o.groups; ++i) {
    const std::int64_t channels = a.size(1) / o.groups, filters = g.size(1) / o.groups;
    const Tensor image = a.narrow(1, i * channels, channels).transpose(0, 1);
    const Tensor kernel = g.narrow(1, i * filters, filters).transpose(0, 1);
    const Tensor found = conv2d(image, kernel, {}, across);
    groups.push_back(found.narrow(2, 0, sizes[2]).narrow(3, 0, sizes[3]).transpose(0, 1));
  }
  return groups.size() == 1 ? groups[0] : cat(groups, 0);
}

template <bool kTransposed>
class ConvNode final : public NodeOf<3> {
 public:
  const char* name() const override { return kTransposed ? "conv_transpose2d" : "conv2d"; }
  void save(std::uint32_t needs, const Tensor& a, const Tensor& weight, const Tensor& bias,
            const ConvOptions& options) {
    if ((needs & 2) != 0) a_.save(a);
    if ((needs & 1) != 0) weight_.save(weight);
    input_.save(a);
    filter_.save(weight);
    if (bias.defined()) bias_.save(bias);
    options_ = options;
  }
  void release_saved() override {
    a_.release();
    weight_.release();
  }
  void backward(const BackwardCall& call) override {
    const Tensor& g = call.grad();
    const Pair &left = options_.output_padding, &stride = options_.stride;
    const bool by_kernel =
        !formulas_recorded() && left.height < stride.height && left.width < stride.width;
    // The weight first: then the input can go before its gradient comes.
    if (call.wants(1) && by_kernel && weight_by_kernel(call) && call.is_last())
      a_.release_early(*this);
    if (call.wants(0) && by_kernel && !kTransposed)
      call.out[0] = direct::conv_input(g, weight_.get(*this), input_.sizes(), options_);
    backward_the_rest(call);
  }
  // With that of the bias, where the convolution is not transposed.
  bool weight_by_kernel(const BackwardCall& call) {
    const Tensor& g = call.grad();
    const Tensor a = a_.get(*this);
    if (kTransposed)
      return direct::conv_weight(a, g, filter_.sizes(), options_, false, call.out[1], call.out[2]);
    if (!direct::conv_weight(g, a, filter_.sizes(), options_, call.wants(2), call.out[1],
                             call.out[2]))
      return false;
    if (call.wants(2)) call.out[2] = match(call.out[2], bias_.sizes(), bias_.dtype());
    return true;
  }
  // What no kernel has computed yet.
  void backward_the_rest(const BackwardCall& call) {
    const Tensor& g = call.grad();
    if (call.wants(0) && !call.out[0].defined()) {
      const Tensor weight = weight_.get(*this);
      if (kTransposed)
        call.out[0] = conv2d(g, weight, {}, options_)
                          .narrow(2, 0, input_.sizes()[2])
                          .narrow(3, 0, input_.sizes()[3]);
      else
        call.out[0] = input_gradient(g, weight, input_.sizes(), options_);
    }
    if (call.wants(1) && !call.out[1].defined()) {
      const Tensor a = a_.get(*this);
      call.out[1] = kTransposed ? weight_gradient(a, g, filter_.sizes(), options_)
                                : weight_gradient(g, a, filter_.sizes(), options_);
    }
    if (call.wants(2) && !call.out[2].defined())
      call.out[2] = match(ops::sum(g, {0, 2, 3}), bias_.sizes(), bias_.dtype());
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor& result) override {
    const auto conv = [&](const Tensor& a, const Tensor& weight) {
      return kTransposed ? conv_transpose2d(a, weight, {}, options_)
                         : conv2d(a, weight, {}, options_);
    };
    Tensor sum;
    const auto add = [&](const Tensor& t) { sum = sum.defined() ? ops::add(sum, t) : t; };
    if (tangents[0].defined()) add(conv(tangents[0], weight_.get(*this)));
    if (tangents[1].defined()) add(conv(a_.get(*this), tangents[1]));
    if (tangents[2].defined()) add(tangents[2].reshape({-1, 1, 1}).expand(result.sizes()));
    return sum;
  }

 private:
  SavedTensor a_, weight_;
  InputShape input_, filter_, bias_;
  ConvOptions options_;
};

}  // namespace

// conv1d is made of conv2d.
void install_conv() {
  set_derivative<ops::op::conv2d, ConvNode<false>>();
  set_derivative<ops::op::conv_transpose2d, ConvNode<true>>();
}

}  // namespace tenon::autograd
