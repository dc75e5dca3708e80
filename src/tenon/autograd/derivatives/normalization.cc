#include <cmath>

#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/derivatives/install.h"
#include "tenon/autograd/derivatives/norm_kernels.h"
#include "tenon/ops/channel_rows.h"
#include "tenon/ops/plane_norms.h"

namespace tenon::autograd {
namespace {

using namespace ops;

constexpr int kNormPasses = 2;  // statistics, and the values

Tensor wide(const Tensor& t) { return to(t, compute_dtype(t.dtype())); }

DimVector last_dims(std::size_t count) {
  DimVector dims;
  for (std::size_t d = 0; d < count; ++d)
    dims.push_back(static_cast<std::int64_t>(d) - static_cast<std::int64_t>(count));
  return dims;
}

Tensor standardized(const Tensor& x, IntList dims, double eps) {
  const Tensor centred = sub(x, ops::mean(x, dims, true));
  return mul(centred, rsqrt(add(ops::mean(square(centred), dims, true), eps)));
}

// [C] as [1, C, 1, ...].
Tensor by_channel(const Tensor& p, std::int64_t dim) {
  DimVector sizes(static_cast<std::size_t>(dim), 1);
  sizes[1] = p.numel();
  return p.reshape(sizes);
}

Tensor affine(Tensor x, const Tensor& weight, const Tensor& bias) {
  if (weight.defined()) x = mul(x, weight);
  return bias.defined() ? add(x, bias) : x;
}

// The normalisations as what they are made of; inputs are {a, weight, bias}.
struct LayerNorm {
  static constexpr const char* kName = "layer_norm";
  DimVector shape;
  double eps = 0;
  void save(IntList s, double e) {
    shape = s.to_vector();
    eps = e;
  }
  std::optional<NormGradients> fast(const Tensor& gradient, const Tensor& a, const Tensor& weight,
                                    bool with_parameters) const {
    return rows_backward(gradient, a, weight, numel_of(shape), eps, true, with_parameters);
  }
  Tensor operator()(const Tensor& a, const Tensor& weight, const Tensor& bias) const {
    const auto shaped = [&](const Tensor& p) { return p.defined() ? wide(p.reshape(shape)) : p; };
    const Tensor x = standardized(wide(a), last_dims(shape.size()), eps);
    return to(affine(x, shaped(weight), shaped(bias)), a.dtype());
  }
};

struct RmsNorm {
  static constexpr const char* kName = "rms_norm";
  DimVector shape;
  double eps = 0;
  void save(IntList s, double e) {
    shape = s.to_vector();
    eps = e;
  }
  std::optional<NormGradients> fast(const Tensor& gradient, const Tensor& a, const Tensor& weight,
                                    bool with_parameters) const {
    return rows_backward(gradient, a, weight, numel_of(shape), eps, false, with_parameters);
  }
  Tensor operator()(const Tensor& a, const Tensor& weight, const Tensor&) const {
    const Tensor x = wide(a);
    const Tensor scale = rsqrt(add(ops::mean(square(x), last_dims(shape.size()), true), eps));
    return to(affine(mul(x, scale), weight.defined() ? wide(weight.reshape(shape)) : weight, {}),
              a.dtype());
  }
};

struct GroupNorm {
  static constexpr const char* kName = "group_norm";
  std::int64_t groups = 1;
  double eps = 0;
  void save(std::int64_t g, double e) {
    groups = g;
    eps = e;
  }
  std::optional<NormGradients> fast(const Tensor& gradient, const Tensor& a, const Tensor& weight,
                                    bool with_parameters) const {
    static_cast<void>(with_parameters);  // they cost nothing more
    return groups_backward(gradient, a, weight, groups, eps);
  }
  Tensor operator()(const Tensor& a, const Tensor& weight, const Tensor& bias) const {
    const std::int64_t length = a.size(0) == 0 ? 0 : a.numel() / (a.size(0) * groups);
    const Tensor rows = wide(a).reshape({a.size(0), groups, length});
    const auto shaped = [&](const Tensor& p) {
      return p.defined() ? by_channel(wide(p), a.dim()) : p;
    };
    const Tensor x = standardized(rows, {-1}, eps).reshape(a.sizes());
    return to(affine(x, shaped(weight), shaped(bias)), a.dtype());
  }
};

template <typename F>
class NormNode : public NodeOf<3> {
 public:
  const char* name() const override { return F::kName; }
  void release_saved() override {
    a_.release();
    weight_.release();
    bias_.release();
  }
  int ready_recompute() override {
    return kNormPasses + a_.ready_recompute() + weight_.ready_recompute() + bias_.ready_recompute();
  }
  void backward(const BackwardCall& call) override {
    const Tensor inputs[] = {a_.get(*this), weight_.get(*this), bias_.get(*this)};
    if (!formulas_recorded() && inputs[0].numel() > 0 && fast(call, inputs)) return;
    std::vector<Tensor> gradients =
        differentiate([this](std::span<const Tensor> in) { return how_(in[0], in[1], in[2]); },
                      inputs, call.grad(), call.wanted & 7);
    for (std::size_t i = 0; i < 3; ++i) call.out[i] = std::move(gradients[i]);
  }

 protected:
  // The edges are a, weight and, except of rms_norm, bias.
  // False: the device has no kernel, and nothing has happened.
  bool fast(const BackwardCall& call, std::span<const Tensor> in) const {
    const Tensor x = contiguous(wide(in[0]));
    const std::optional<NormGradients> found =
        how_.fast(contiguous(to(call.grad(), x.dtype())), x,
                  in[1].defined() ? contiguous(to(in[1], x.dtype())) : in[1],
                  call.wants(1) || call.wants(2));
    if (!found) return false;
    const Tensor* all[] = {&found->input, &found->weight, &found->bias};
    for (std::size_t i = 0; i < 3; ++i)
      if (call.wants(i)) call.out[i] = to(all[i]->reshape(in[i].sizes()), in[i].dtype());
    return true;
  }
  void keep(const Tensor& a, const Tensor& weight, const Tensor& bias) {
    a_.save(a);
    weight_.save(weight);
    bias_.save(bias);
  }
  SavedTensor a_, weight_, bias_;
  F how_;
};

class LayerNormNode final : public NormNode<LayerNorm> {
 public:
  void save(std::uint32_t, const Tensor& a, IntList shape, const Tensor& weight, const Tensor& bias,
            double eps) {
    keep(a, weight, bias);
    how_.save(shape, eps);
  }
  Tensor recompute() const override {
    return ops::layer_norm(a_.get(*this), how_.shape, weight_.get(*this), bias_.get(*this),
                           how_.eps);
  }
};

class RmsNormNode final : public NormNode<RmsNorm> {
 public:
  void save(std::uint32_t, const Tensor& a, IntList shape, const Tensor& weight, double eps) {
    keep(a, weight, {});
    how_.save(shape, eps);
  }
  Tensor recompute() const override {
    return ops::rms_norm(a_.get(*this), how_.shape, weight_.get(*this), how_.eps);
  }
};

class GroupNormNode final : public NormNode<GroupNorm> {
 public:
  void save(std::uint32_t, const Tensor& a, std::int64_t groups, const Tensor& weight,
            const Tensor& bias, double eps) {
    keep(a, weight, bias);
    how_.save(groups, eps);
  }
  Tensor recompute() const override {
    return ops::group_norm(a_.get(*this), how_.groups, weight_.get(*this), bias_.get(*this),
                           how_.eps);
  }
};

// Edges to a, the running mean and variance (which get none while training), weight and bias.
class BatchNormNode final : public NodeOf<5> {
 public:
  const char* name() const override { return "batch_norm"; }
  void save(std::uint32_t, const Tensor& a, const Tensor& mean, const Tensor& var,
            const Tensor& weight, const Tensor& bias, bool training, double, double eps) {
    training_ = training;
    eps_ = eps;
    // Running statistics change while training, and do not matter then.
    const Tensor none;
    const Tensor* all[] = {&a, training ? &none : &mean, training ? &none : &var, &weight, &bias};
    for (std::size_t i = 0; i < 5; ++i) saved_[i].save(*all[i]);
  }
  void release_saved() override {
    for (SavedTensor& t : saved_) t.release();
  }
  int ready_recompute() override {
    int passes = kNormPasses;
    for (SavedTensor& t : saved_) passes += t.ready_recompute();
    return passes;
  }
  // With the batch's own statistics, those of a module stay as they are.
  Tensor recompute() const override {
    return ops::batch_norm(saved_[0].get(*this), saved_[1].get(*this), saved_[2].get(*this),
                           saved_[3].get(*this), saved_[4].get(*this), training_, 0, eps_);
  }
  void backward(const BackwardCall& call) override {
    std::vector<Tensor> inputs;
    for (const SavedTensor& t : saved_) inputs.push_back(t.get(*this));
    const bool of_statistics = call.wants(1) || call.wants(2);
    if (!formulas_recorded() && inputs[0].numel() > 0 && (training_ || !of_statistics) &&
        fast(call, inputs))
      return;
    std::vector<Tensor> gradients =
        differentiate([this](std::span<const Tensor> in) { return made_of(in); }, inputs,
                      call.grad(), call.wanted & (training_ ? 0x19u : 0x1fu));
    for (std::size_t i = 0; i < 5; ++i) call.out[i] = std::move(gradients[i]);
  }

 private:
  // In a's order, and in its dtype.
  void by_rows(const BackwardCall& call, std::span<const Tensor> in) const {
    const Tensor& a = in[0];
    const std::int64_t channels = a.size(1);
    ChannelNumbers mean, scale;
    if (training_) {
      moments_of_channels(a, mean, scale);
    } else {
      mean = numbers_of(in[1], channels, 0);
      scale = numbers_of(in[2], channels, 0);
    }
    for (double& s : scale) s = 1 / std::sqrt(s + eps_);
    const bool is_like_a = call.grad().strides() == a.strides() && call.grad().dtype() == a.dtype();
    const Tensor g = is_like_a ? call.grad() : copy_(empty_like(a), call.grad());
    ChannelGradients found =
        channel_gradients(g, a, mean, scale, numbers_of(in[3], channels, 1), training_);
    const auto of = [&](const ChannelNumbers& numbers, const Tensor& like) {
      return match(to(tensor<double>(numbers, {channels}), like.dtype()), like.sizes(),
                   like.dtype());
    };
    if (call.wants(0)) call.out[0] = found.input;
    if (call.wants(3)) call.out[3] = of(found.weight, in[3]);
    if (call.wants(4)) call.out[4] = of(found.bias, in[4]);
  }
  // As NormNode's.
  bool fast(const BackwardCall& call, std::span<const Tensor> in) const {
    if (has_channel_rows(in[0])) {
      by_rows(call, in);
      return true;
    }
    const bool takes_narrow = in[0].device() == Device{} || in[0].is_meta();
    const bool keeps_order = in[0].is_meta() && is_channels_last(in[0]);  // as by_rows does
    const Tensor x = keeps_order ? in[0] : contiguous(takes_narrow ? in[0] : wide(in[0]));
    const auto dense = [&](const Tensor& t) { return t.defined() ? contiguous(wide(t)) : t; };
    const std::optional<NormGradients> found =
        channels_backward(contiguous(to(call.grad(), x.dtype())), x, dense(in[3]),
                          training_ ? Tensor() : dense(in[1]),
                          training_ ? Tensor() : dense(in[2]), eps_);
    if (!found) return false;
    if (call.wants(0)) call.out[0] = to(found->input, in[0].dtype());
    if (call.wants(3)) call.out[3] = match(found->weight, in[3].sizes(), in[3].dtype());
    if (call.wants(4)) call.out[4] = match(found->bias, in[4].sizes(), in[4].dtype());
    return true;
  }
  Tensor made_of(std::span<const Tensor> in) const {
    const std::int64_t dim = in[0].dim();
    const auto shaped = [&](const Tensor& p) { return p.defined() ? by_channel(wide(p), dim) : p; };
    Tensor x = wide(in[0]);
    if (training_) {
      DimVector dims;
      for (std::int64_t d = 0; d < dim; ++d)
        if (d != 1) dims.push_back(d);
      x = standardized(x, dims, eps_);
    } else {
      x = mul(sub(x, shaped(in[1])), rsqrt(add(shaped(in[2]), eps_)));
    }
    return to(affine(x, shaped(in[3]), shaped(in[4])), in[0].dtype());
  }

  SavedTensor saved_[5];
  double eps_ = 0;
  bool training_ = false;
};

}  // namespace

void install_normalization() {
  set_derivative<ops::op::layer_norm, LayerNormNode>();
  set_derivative<ops::op::rms_norm, RmsNormNode>();
  set_derivative<ops::op::group_norm, GroupNormNode>();
  set_derivative<ops::op::batch_norm, BatchNormNode>();
}

}  // namespace tenon::autograd
