#include "tenon/nn/packed_attention.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/base/error.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/fused_attention.h"
#include "tenon/tensor/copy.h"

namespace tenon::nn {
namespace {

// The queries, keys and values in `qkv`, and the places for their gradients, [N, heads, L, size].
ops::Attention parts_of(const Tensor& qkv, std::int64_t heads, bool causal) {
  const std::int64_t batch = qkv.size(0), length = qkv.size(1), size = qkv.size(2) / (3 * heads);
  const Tensor all = qkv.reshape({batch, length, 3, heads, size}).permute({2, 0, 3, 1, 4});
  return {all.select(0, 0), all.select(0, 1), all.select(0, 2), {}, causal,
          1 / std::sqrt(static_cast<double>(size))};
}

// From what attention is made of.
Tensor composed(const Tensor& qkv, std::int64_t heads, bool causal) {
  const Tensor seen = ops::composed_attention(parts_of(qkv, heads, causal));
  return seen.transpose(1, 2).reshape({qkv.size(0), qkv.size(1), qkv.size(2) / 3});
}

// [N, L, heads * size] as [N, heads, L, size].
Tensor by_heads(const Tensor& t, std::int64_t heads) {
  return t.reshape({t.size(0), t.size(1), heads, t.size(2) / heads}).transpose(1, 2);
}

Tensor forward(const Tensor& qkv, std::int64_t heads, bool causal, const Tensor& sums) {
  const std::int64_t batch = qkv.size(0), length = qkv.size(1), width = qkv.size(2) / 3;
  const Tensor out = empty({batch, length, width}, qkv.dtype());
  if (out.numel() > 0)
    ops::fused_attention(parts_of(qkv, heads, causal), {by_heads(out, heads), sums});
  return out;
}

Tensor backward(const Tensor& qkv, const Tensor& result, const Tensor& sums,
                const Tensor& gradient, std::int64_t heads, bool causal) {
  const Tensor out = empty(qkv.sizes());
  if (out.numel() == 0) return tenon::to(out, qkv.dtype());
  const ops::Attention to = parts_of(out, heads, causal);
  ops::fused_attention_gradients(parts_of(qkv, heads, causal), {by_heads(result, heads), sums},
                                 by_heads(gradient, heads), {to.query, to.key, to.value});
  return tenon::to(out, qkv.dtype());
}

constinit ops::Operator<Tensor(const Tensor&, std::int64_t, bool, const Tensor&)> attention(
    "packed_attention", &forward, nullptr, 1);

class PackedAttentionNode final : public autograd::NodeOf<1> {
 public:
  const char* name() const override { return "packed_attention"; }
  void save(std::uint32_t, const Tensor& qkv, std::int64_t heads, bool causal,
            const Tensor& sums) {
    qkv_.save(qkv);
    heads_ = heads;
    causal_ = causal;
    unwritten_sums_ = sums;
  }
  void save_result(const Tensor& result) {
    out_.save_result(result);
    if (unwritten_sums_.defined()) sums_.save(std::exchange(unwritten_sums_, {}));
  }
  void release_saved() override { qkv_.release(), out_.release(), sums_.release(); }
  void backward(const autograd::BackwardCall& call) override {
    const Tensor qkv = qkv_.get(*this);
    if (!autograd::formulas_recorded()) {
      call.out[0] = nn::backward(qkv, out_.get(*this), sums_.get(*this), call.grad(), heads_,
                                 causal_);
      return;
    }
    const auto f = [this](std::span<const Tensor> in) { return composed(in[0], heads_, causal_); };
    call.out[0] = autograd::differentiate(f, {&qkv, 1}, call.grad(), 1)[0];
  }

 private:
  autograd::SavedTensor qkv_, out_, sums_;
  Tensor unwritten_sums_;  // until the result is there
  std::int64_t heads_ = 1;
  bool causal_ = false;
};

// Only what is recorded needs the sums.
Tensor recorded(const Tensor& qkv, std::int64_t heads, bool causal, const Tensor&) {
  const bool needs = autograd::detail::needs_of(qkv).all() != 0;
  return autograd::Kernel<attention, PackedAttentionNode>::run(
      qkv, heads, causal, needs ? ops::empty_sums(parts_of(qkv, heads, causal)) : Tensor());
}

const bool installed = (attention.set_kernel(DispatchKey::kAutograd, &recorded), true);

}  // namespace

Tensor packed_attention(const Tensor& qkv, std::int64_t heads, bool causal) {
  static_cast<void>(installed);
  if (qkv.dim() != 3 || heads < 1 || qkv.size(2) % (3 * heads) != 0)
    throw InvalidArgument(
        fmt::format("packed_attention: shape {} with {} heads; it takes "
                    "[N, L, 3 * heads * size]",
                    to_string(qkv.sizes()), heads));
  if (ops::compute_dtype(qkv.dtype()) != DType::kF32 || qkv.device() != Device{})
    return composed(qkv, heads, causal);
  return attention(qkv, heads, causal, {});
}

}  // namespace tenon::nn
