// In-place changes: whose history they become.
#include <fmt/format.h>

#include "tenon/autograd/meta.h"
#include "tenon/autograd/view_record.h"
#include "tenon/base/error.h"
#include "tenon/tensor/geometry.h"

namespace tenon::autograd {
namespace {

// Note [Views and in-place changes]
//
// A view that is changed in place takes a part of its base with it. The base's values are then made
// by two: its history so far, outside of the view, and the change inside.
//
//     base'  = WriteNode ──► base's history so far   (gradient with zeros where the view looks)
//                        └─► the change's node       (gradient where the view looks)
//     view'  =               the change's node
//
// Other views of the base see the changed values, too. They notice by the version they share: when
// one is used next, its history is made anew, as a strided view of the base.
class WriteNode final : public NodeOf<2> {
 public:
  WriteNode(const Tensor& base, const Tensor& view) : record_(base, view) {}
  const char* name() const override { return "write through a view"; }
  void backward(const BackwardCall& call) override {
    if (call.wants(1)) call.out[1] = record_.apply(call.grad());
    if (call.wants(0)) call.out[0] = record_.without(call.grad());
  }

 private:
  const ViewRecord record_;
};

void move_retained(AutogradMeta& meta, const Tensor& target, Node& to) {
  if (!meta.retains_grad_ || !meta.grad_fn_) return;
  NodeExtra* from = meta.grad_fn_->extra();
  if (from == nullptr) return;
  std::erase_if(from->retained, [&](const NodeExtra::Retained& r) {
    return r.tensor.lock().get() == target.impl();
  });
  to.ensure_extra().retained.push_back({WeakIntrusivePtr<TensorImpl>(target.impl_ptr()), 0});
}

void set_history(const Tensor& t, AutogradMeta& meta, NodePtr node) {
  move_retained(meta, t, *node);
  if (meta.grad_fn_) drop_node(std::move(meta.grad_fn_));
  meta.grad_fn_ = std::move(node);
  meta.output_nr_ = 0;
  meta.requires_grad_ = true;
}

std::string described(const Tensor& t) { return fmt::format("shape {}", to_string(t.sizes())); }

}  // namespace

void check_views_are_watched(const char* what, const Tensor& target) {
  if (meta_of(target) == nullptr && target.storage().use_count() > 1)
    throw InvalidArgument(fmt::format(
        "{}: values with a gradient or a tangent would go into a tensor of {}, and tensors that "
        "share its memory would get neither; call autograd::watch_views on the whole tensor before "
        "its views are made, or clone the target",
        what, described(target)));
}

void check_in_place(const char* what, const Tensor& target) {
  check_views_are_watched(what, target);
  if (!target.is_contiguous() && !is_surely_non_overlapping(target.sizes(), target.strides()))
    throw InvalidArgument(fmt::format(
        "{}: the target of {} and strides {} has elements that share memory; clone it first", what,
        described(target), to_string(target.strides())));
  const AutogradMeta* meta = meta_of(target);
  if (meta == nullptr) return;
  if (meta->made_without_grad_ && meta->grad_fn_)
    throw InvalidArgument(fmt::format(
        "{}: the target of {} was returned by {} and shares memory with its input or another of "
        "its results; let its forward return a clone, or change it under NoGradGuard",
        what, described(target), meta->grad_fn_->name()));
  if (meta->made_without_grad_)
    throw InvalidArgument(fmt::format(
        "{}: the target of {} is a view that was made while no gradients were recorded; make the "
        "view again, or change it under NoGradGuard",
        what, described(target)));
  const auto is_needed_leaf = [](const AutogradMeta& m) { return m.requires_grad_ && !m.grad_fn_; };
  if (meta->base_.defined()) {
    if (is_needed_leaf(*meta_of(meta->base_)))
      throw InvalidArgument(fmt::format(
          "{}: the target of {} is a view of a leaf that requires a gradient; change it under "
          "NoGradGuard, or clone it first",
          what, described(target)));
  } else if (is_needed_leaf(*meta)) {
    throw InvalidArgument(fmt::format(
        "{}: the target of {} is a leaf that requires a gradient, and cannot be changed in place "
        "while gradients are recorded; use NoGradGuard, or clone it first",
        what, described(target)));
  }
}

void rebase_history(const Tensor& target, NodePtr node) {
  AutogradMeta& meta = ensure_meta(target);
  if (meta.base_.defined()) {
    AutogradMeta& base = *meta_of(meta.base_);
    auto write = make_intrusive<WriteNode>(meta.base_, target);
    if (base.needs_grad()) write->edges()[0] = gradient_edge(meta.base_);
    write->edges()[1] = {node, 0};
    set_history(meta.base_, base, std::move(write));
  }
  set_history(target, meta, std::move(node));
  meta.view_version_ = target.version();
}

}  // namespace tenon::autograd
