#include "tenon/ops/attention.h"

#include <utility>

#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/derivatives/install.h"
#include "tenon/ops/fused_attention.h"

namespace tenon::autograd {
namespace {

using ops::Attention;
using ops::op::scaled_dot_product_attention;

// Of the operator below. Edges to query, key, value and the mask, which gets none.
class AttentionNode final : public NodeOf<4> {
 public:
  const char* name() const override { return "scaled_dot_product_attention"; }
  void save(std::uint32_t, const Tensor& query, const Tensor& key, const Tensor& value,
            const Tensor& mask, bool is_causal, double scale, const Tensor& sums) {
    const Tensor* all[] = {&query, &key, &value, &mask};
    for (std::size_t i = 0; i < 4; ++i) saved_[i].save(*all[i]);
    is_causal_ = is_causal;
    scale_ = scale;
    unwritten_sums_ = sums;
  }
  void save_result(const Tensor& result) {
    out_.save_result(result);
    sums_.save(std::exchange(unwritten_sums_, {}));
  }
  void release_saved() override {
    for (SavedTensor& t : saved_) t.release();
    out_.release(), sums_.release();
  }
  void backward(const BackwardCall& call) override {
    const Tensor in[] = {saved_[0].get(*this), saved_[1].get(*this), saved_[2].get(*this),
                         saved_[3].get(*this)};
    if (!formulas_recorded()) return fast(call, in);
    const auto f = [this](std::span<const Tensor> x) {
      return ops::composed_attention({x[0], x[1], x[2], x[3], is_causal_, scale_});
    };
    std::vector<Tensor> gradients = differentiate(f, in, call.grad(), call.wanted & 7);
    for (std::size_t i = 0; i < 3; ++i) call.out[i] = std::move(gradients[i]);
  }

 private:
  void fast(const BackwardCall& call, std::span<const Tensor> in) const {
    const Attention attention{in[0], in[1], in[2], in[3], is_causal_, scale_};
    Tensor gradients[3];
    for (std::size_t i = 0; i < 3; ++i)
      if (call.wants(i)) gradients[i] = ops::empty_gradient(attention, in[i]);
    ops::fused_attention_gradients(attention, {out_.get(*this), sums_.get(*this)}, call.grad(),
                                   {gradients[0], gradients[1], gradients[2]});
    for (std::size_t i = 0; i < 3; ++i)
      if (call.wants(i)) call.out[i] = match(gradients[i], in[i].sizes(), in[i].dtype());
  }

  SavedTensor saved_[4], out_, sums_;
  Tensor unwritten_sums_;  // until the result is there
  double scale_ = 1;
  bool is_causal_ = false;
};

Tensor with_sums(const Tensor& query, const Tensor& key, const Tensor& value,
                     const Tensor& mask, bool is_causal, double scale, const Tensor& sums) {
  const Attention attention{query, key, value, mask, is_causal, scale};
  const Tensor out = ops::empty_attention(attention);
  ops::fused_attention(attention, {out, sums});
  return out;
}
Labels labels_with_sums(const char* what, const Tensor& query, const Tensor& key,
                        const Tensor& value, const Tensor& mask, bool is_causal, double scale,
                        const Tensor&) {
  return ops::labels::attention(what, query, key, value, mask, is_causal, scale);
}
constinit ops::Operator<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool,
                               double, const Tensor&)>
    attention_with_sums("scaled_dot_product_attention", &with_sums, &labels_with_sums, 3);

// What the fused kernel does not serve is recorded as what it is made of.
Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                 bool is_causal, std::optional<double> scale) {
  const Needs needs = detail::needs_of(query, key, value, mask);
  if (needs.all() == 0) {
    const ops::KeyGuard below(DispatchKey::kAutograd);
    return scaled_dot_product_attention(query, key, value, mask, is_causal, scale);
  }
  const Attention all = ops::attention_of(query, key, value, mask, is_causal, scale);
  const bool of_mask = (needs.grads >> 3) != 0;
  if (of_mask || needs.tangents != 0 || !ops::has_fused_attention(all))
    return ops::composed_attention(all);
  return Kernel<attention_with_sums, AttentionNode>::run(
      query, key, value, mask, is_causal, all.scale, ops::empty_sums(all));
}

}  // namespace

void install_attention() {
  scaled_dot_product_attention.set_kernel(DispatchKey::kAutograd, &attention);
}

}  // namespace tenon::autograd
