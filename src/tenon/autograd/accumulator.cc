#include "tenon/autograd/accumulator.h"

#include <mutex>

#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/gradient_taker.h"

namespace tenon::autograd {

AccumulatorNode::AccumulatorNode(const Tensor& leaf) : Node(nullptr, 0), leaf_(leaf) {
  set_sequence(std::numeric_limits<std::uint64_t>::max());
}

void AccumulatorNode::hold_weakly() {
  if (!leaf_.defined()) return;
  weak_ = WeakIntrusivePtr<TensorImpl>(leaf_.impl_ptr());
  leaf_ = Tensor();
}

bool AccumulatorNode::awaits_first(DType dtype) const {
  const Tensor leaf = leaf_.defined() ? leaf_ : Tensor(weak_.lock());
  return leaf.defined() && leaf.dtype() == dtype && !meta_of(leaf)->grad_.defined();
}

void AccumulatorNode::backward(const BackwardCall& call) {
  Tensor gradient = std::move(call.grad());
  const Tensor leaf = leaf_.defined() ? leaf_ : Tensor(weak_.lock());
  if (!leaf.defined()) return;  // its grad could not be seen
  {
    const std::lock_guard lock(adding_);
    Tensor& grad = meta_of(leaf)->grad_;
    if (grad_enabled()) {
      grad = grad.defined() ? ops::add(grad, gradient) : gradient;
    } else if (grad.defined()) {
      const RecordAgain below(false);
      ops::add_(grad, gradient);
    } else if (is_exclusive(gradient) && gradient.strides() == leaf.strides() &&
               gradient.dtype() == leaf.dtype() &&
               gradient.storage().nbytes() <= gradient.nbytes() + 64) {
      grad = std::move(gradient);
    } else {
      Tensor own = empty_like(leaf);
      copy_(own, gradient.detach());
      grad = std::move(own);
    }
  }
  if (extra() == nullptr) [[likely]]
    return;
  for (const auto& [id, hook] : NodeExtra::Hooks<AccumulateHook>(extra()->accumulate_hooks)) {
    const RecordAgain again(grad_enabled());
    hook(leaf);
  }
  if (const std::shared_ptr<GradientTaker> taker = extra()->taker) {
    const RecordAgain again(grad_enabled());
    taker->take_whole(leaf);
  }
}

NodePtr make_accumulator(const Tensor& leaf) { return make_intrusive<AccumulatorNode>(leaf); }

void keep_accumulator(AutogradMeta& meta, const NodePtr& node) {
  if (meta.extra_ == nullptr) meta.extra_ = std::make_unique<AutogradMeta::Extra>();
  meta.extra_->kept_accumulator = node;
  static_cast<AccumulatorNode&>(*node).hold_weakly();
}

}  // namespace tenon::autograd
