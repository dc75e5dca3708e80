#include "tenon/ops/attention.h"

#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/derivatives/install.h"
#include "tenon/ops/fused_attention.h"

namespace tenon::autograd {
namespace {

using ops::Attention;
using ops::op::scaled_dot_product_attention;

// Edges to query, key, value and the mask, which gets none.
class AttentionNode final : public NodeOf<4> {
 public:
  const char* name() const override { return "scaled_dot_product_attention"; }
  void save(std::uint32_t, const Tensor& query, const Tensor& key, const Tensor& value,
            const Tensor& mask, bool is_causal, std::optional<double> scale) {
    const Tensor* all[] = {&query, &key, &value, &mask};
    for (std::size_t i = 0; i < 4; ++i) saved_[i].save(*all[i]);
    is_causal_ = is_causal;
    scale_ = ops::attention_of(query, key, value, mask, is_causal, scale).scale;
  }
  void release_saved() override {
    for (SavedTensor& t : saved_) t.release();
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
    const DType compute = ops::compute_dtype(attention.dtype());
    DimVector sizes = attention.sizes();
    Tensor gradients[3];
    for (std::size_t i = 0; i < 3; ++i) {
      if (!call.wants(i)) continue;
      sizes[sizes.size() - 2] = in[i].size(-2);
      sizes.back() = in[i].size(-1);
      gradients[i] = ops::empty_in_order_of(in[i].expand(sizes), sizes, compute);
    }
    ops::fused_attention_gradients(attention, call.grad(),
                                   {gradients[0], gradients[1], gradients[2]});
    for (std::size_t i = 0; i < 3; ++i)
      if (call.wants(i)) call.out[i] = match(gradients[i], in[i].sizes(), in[i].dtype());
  }

  SavedTensor saved_[4];
  double scale_ = 1;
  bool is_causal_ = false;
};

// What the fused kernel does not serve is recorded as what it is made of.
Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                 bool is_causal, std::optional<double> scale) {
  const Needs needs = detail::needs_of(query, key, value, mask);
  const bool of_mask = (needs.grads >> 3) != 0;
  if (needs.all() != 0) {
    const Attention all = ops::attention_of(query, key, value, mask, is_causal, scale);
    if (of_mask || needs.tangents != 0 || !ops::has_fused_attention(all))
      return ops::composed_attention(all);
  }
  return Kernel<scaled_dot_product_attention, AttentionNode>::run(query, key, value, mask,
                                                                  is_causal, scale);
}

}  // namespace

void install_attention() {
  scaled_dot_product_attention.set_kernel(DispatchKey::kAutograd, &attention);
}

}  // namespace tenon::autograd
