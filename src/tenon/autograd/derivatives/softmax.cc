#include "tenon/autograd/derivatives/direct.h"
#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/derivatives/install.h"

namespace tenon::autograd {
namespace {

template <bool kLog>
class SoftmaxNode final : public NodeOf<1> {
 public:
  const char* name() const override { return kLog ? "log_softmax" : "softmax"; }
  void save(std::uint32_t, const Tensor&, std::int64_t dim) { dim_ = dim; }
  void save_result(const Tensor& result) { result_.save_result(result); }
  void release_saved() override { result_.release(); }
  void backward(const BackwardCall& call) override {
    const Tensor result = result_.get(*this);
    const Tensor& g = call.grad();
    if (result.dim() == 0) {
      call.out[0] = zeros_like(g);
    } else if constexpr (kLog) {
      call.out[0] = ops::sub(g, ops::mul(ops::exp(result), ops::sum(g, dim_, true)));
    } else {
      if (!formulas_recorded()) call.out[0] = direct::softmax(g, result, dim_);
      if (call.out[0].defined()) return;
      const Tensor weighted = ops::mul(g, result);
      call.out[0] = ops::sub(weighted, ops::mul(result, ops::sum(weighted, dim_, true)));
    }
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor& result) override {
    const Tensor& t = tangents[0];
    if (result.dim() == 0) return zeros_like(t);
    const Tensor saved = result_.get(*this);
    const Tensor p = kLog ? ops::exp(saved) : saved;
    const Tensor slope = ops::sub(t, ops::sum(ops::mul(p, t), dim_, true));
    return kLog ? slope : ops::mul(p, slope);
  }

 private:
  SavedTensor result_;
  std::int64_t dim_ = 0;
};

}  // namespace

void install_softmax() {
  set_derivative<ops::op::softmax, SoftmaxNode<false>>();
  set_derivative<ops::op::log_softmax, SoftmaxNode<true>>();
}

}  // namespace tenon::autograd
