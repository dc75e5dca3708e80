#include "tenon/autograd/meta.h"

#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "tenon/autograd/accumulator.h"
#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/view_record.h"
#include "tenon/base/error.h"
#include "tenon/tensor/indexing.h"

namespace tenon::autograd {

static_assert(sizeof(AutogradMeta) <= AutogradMeta::kBytes);

namespace {

class ViewNode final : public NodeOf<1> {
 public:
  explicit ViewNode(ViewRecord record) : record_(std::move(record)) {}
  const char* name() const override { return record_.name(); }
  void backward(const BackwardCall& call) override { call.out[0] = record_.undo(call.grad()); }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    return record_.apply(tangents[0]);
  }

 private:
  const ViewRecord record_;
};

// split and unbind: a gradient for each piece, and one for what was cut. Pieces that nothing was
// made of give zeros.
class SplitNode final : public NodeOf<1> {
 public:
  SplitNode(const Tensor& base, std::span<const Tensor> views, const ViewInfo& first)
      : unbinds_(first.kind == ViewInfo::Kind::kSelect), dim_(first.numbers[0]) {
    base_.save(base);
    set_output_count(views.size());
    if (!unbinds_)
      for (const Tensor& view : views) lengths_.push_back(view.size(dim_));
  }
  const char* name() const override { return unbinds_ ? "unbind" : "split"; }
  void backward(const BackwardCall& call) override {
    std::vector<Tensor> pieces;
    const std::size_t count = unbinds_ ? static_cast<std::size_t>(base_.sizes()[axis()])
                                       : lengths_.size();
    Tensor like;
    for (std::size_t i = 0; i < count && !like.defined(); ++i) like = call.grads[i];
    for (std::size_t i = 0; i < count; ++i)
      pieces.push_back(call.grads[i].defined() ? call.grads[i] : zeros_of(i, like));
    call.out[0] = unbinds_ ? ops::stack(pieces, dim_) : ops::cat(pieces, dim_);
  }

 private:
  std::size_t axis() const { return static_cast<std::size_t>(dim_); }
  // One element, however large the piece.
  Tensor zeros_of(std::size_t i, const Tensor& like) const {
    DimVector sizes = base_.sizes().to_vector();
    if (unbinds_)
      sizes.erase(axis());
    else
      sizes[axis()] = lengths_[i];
    return zeros({}, like.dtype(), like.device()).expand(sizes);
  }

  const bool unbinds_;
  const std::int64_t dim_;
  InputShape base_;
  DimVector lengths_;  // of split's pieces
};

// Values that went to another place, dtype or device.
class CopyNode final : public NodeOf<1> {
 public:
  CopyNode(const char* name, const Tensor& source) : name_(name), device_(source.device()) {
    shape_.save(source);
  }
  const char* name() const override { return name_; }
  void backward(const BackwardCall& call) override {
    const Tensor& g = call.grad();
    call.out[0] = shape_.match(g.device() == device_ ? g : to(g, device_));
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor& result) override {
    const Tensor& t = tangents[0];
    return to(t.sizes() == result.sizes() ? t : t.expand(result.sizes()), result.dtype());
  }

 private:
  const char* const name_;
  const Device device_;
  InputShape shape_;
};

// A constant was written: nothing goes on from here.
class ConstantNode final : public NodeOf<1> {
 public:
  const char* name() const override { return "fill_"; }
  void backward(const BackwardCall&) override {}
};

std::vector<TensorIndex> full_index(std::span<const Tensor> indices) {
  std::vector<TensorIndex> all;
  for (const Tensor& index : indices)
    index.defined() ? all.emplace_back(index) : all.emplace_back(Slice());
  return all;
}

class IndexNode final : public NodeOf<1> {
 public:
  IndexNode(const Tensor& source, std::span<const Tensor> indices)
      : indices_(indices.begin(), indices.end()) {
    shape_.save(source);
  }
  const char* name() const override { return "index"; }
  void backward(const BackwardCall& call) override {
    const Tensor out = zeros(shape_.sizes(), call.grad().dtype(), call.grad().device());
    out.index_put_(full_index(indices_), call.grad(), true);
    call.out[0] = out;
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    return tangents[0].index(full_index(indices_));
  }

 private:
  const std::vector<Tensor> indices_;
  InputShape shape_;
};

// target[indices] = values, or +=: edges to the target as it was, and to the values.
class IndexPutNode final : public NodeOf<2> {
 public:
  IndexPutNode(std::span<const Tensor> indices, const Tensor& values, bool accumulate)
      : indices_(indices.begin(), indices.end()), accumulate_(accumulate) {
    shape_.save(values);
  }
  const char* name() const override { return "index_put_"; }
  void backward(const BackwardCall& call) override {
    const Tensor& g = call.grad();
    if (call.wants(0)) {
      if (accumulate_) {
        call.out[0] = g;
      } else {
        const Tensor rest = clone(g);
        rest.index_put_(full_index(indices_), scalar_tensor(0, g.dtype()));
        call.out[0] = rest;
      }
    }
    if (call.wants(1)) call.out[1] = shape_.match(g.index(full_index(indices_)));
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor& result) override {
    const Tensor target = tangents[0].defined()
                              ? clone(tangents[0])
                              : zeros(result.sizes(), result.dtype(), result.device());
    const bool written = tangents[1].defined();
    if (written || !accumulate_)
      target.index_put_(full_index(indices_),
                        written ? tangents[1] : scalar_tensor(0, result.dtype()), accumulate_);
    return target;
  }

 private:
  const std::vector<Tensor> indices_;
  const bool accumulate_;
  InputShape shape_;
};

bool can_have_gradient(DType dtype) { return is_floating(dtype) || is_complex(dtype); }

// The result of a function of one tensor that the tensor layer runs by itself.
template <typename Make>
void record_result(const Tensor& source, Tensor& result, Make&& make) {
  if (recording_suspended() || !can_have_gradient(result.dtype())) return;
  const Needs needs = detail::needs_of(source);
  if (needs.all() == 0) return;
  auto node = make();
  detail::connect(*node, needs.grads, source);
  if (anomaly_enabled()) [[unlikely]]
    detail::note_call(*node);
  finish_call(node, needs, result, source);
}

}  // namespace

void AutogradMeta::set_requires_grad(bool requires_grad, TensorImpl& self) {
  if (!requires_grad && grad_fn_)
    throw InvalidArgument(
        fmt::format("set_requires_grad: a tensor of shape {} made by {} cannot stop requiring a "
                    "gradient; detach() it",
                    to_string(self.sizes()), grad_fn_->name()));
  if (requires_grad && !can_have_gradient(self.dtype()))
    throw InvalidArgument(
        fmt::format("set_requires_grad: a tensor of {}: floating-point and complex tensors alone "
                    "have gradients",
                    dtype_name(self.dtype())));
  requires_grad_ = requires_grad;
}

void AutogradMeta::follow(const Tensor& base, Tensor& view) const {
  auto made = std::make_unique<AutogradMeta>();
  made->base_ = base_.defined() ? base_ : base;
  made->view_version_ = view.version();
  made->made_without_grad_ = !grad_enabled() || made_without_grad_;
  view.impl()->set_autograd_meta(std::move(made));
}

void AutogradMeta::view_created(const Tensor& base, Tensor& view, const ViewInfo& info) {
  if (recording_suspended()) return;
  follow(base, view);
  const Needs needs = detail::needs_of(base);
  if (needs.all() == 0) return;
  auto node = make_intrusive<ViewNode>(ViewRecord(base, view, info));
  detail::connect(*node, needs.grads, base);
  if (anomaly_enabled()) [[unlikely]]
    detail::note_call(*node);
  finish_call(node, needs, view, base);
}

void AutogradMeta::views_created(const Tensor& base, std::span<Tensor> views,
                                 std::span<const ViewInfo> infos) {
  if (recording_suspended() || views.empty()) return;
  for (Tensor& view : views) follow(base, view);
  const Needs needs = detail::needs_of(base);
  if (needs.all() == 0) return;
  auto node = make_intrusive<SplitNode>(base, views, infos[0]);
  detail::connect(*node, needs.grads, base);
  if (anomaly_enabled()) [[unlikely]]
    detail::note_call(*node);
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (needs.grads != 0) attach_history(views[i], node, static_cast<std::uint32_t>(i));
    if (needs.tangents == 0) continue;
    // The tangent of a piece is that piece of the tangent.
    const auto piece = make_intrusive<ViewNode>(ViewRecord(base, views[i], infos[i]));
    detail::add_tangents(*piece, views[i], base);
  }
}

void AutogradMeta::copied(const Tensor& source, Tensor& copy) {
  record_result(source, copy, [&] {
    return make_intrusive<CopyNode>(copy.dtype() == source.dtype() ? "clone" : "to", source);
  });
}

void AutogradMeta::indexed(const Tensor& source, Tensor& result, std::span<const Tensor> indices,
                           std::int64_t) {
  record_result(source, result, [&] { return make_intrusive<IndexNode>(source, indices); });
}

void AutogradMeta::check_writable(const Tensor& target, const Tensor& source) {
  if (recording() && (detail::is_watched(target) || autograd::needs_grad(source)))
    check_in_place("an in-place write", target);
  else if (!recording_suspended() && has_tangent(source))
    check_views_are_watched("an in-place write", target);
}

void AutogradMeta::written(Tensor& target, const Tensor& source) {
  if (recording_suspended()) return;
  const Needs needs = source.defined() ? detail::needs_of(source) : Needs();
  const Needs of_target = detail::needs_of(target);
  if ((needs.all() | of_target.all()) == 0) return;
  NodePtr node;
  if (source.defined()) {
    node = make_intrusive<CopyNode>("copy_", source);
    detail::connect(*node, needs.grads, source);
  } else {
    node = make_intrusive<ConstantNode>();
  }
  if (anomaly_enabled()) [[unlikely]]
    detail::note_call(*node);
  if ((needs.grads | of_target.grads) != 0) rebase_history(target, node);
  if ((needs.tangents | of_target.tangents) != 0) {
    const Tensor nothing;
    TangentInputs(1, source.defined() ? source : nothing).propagate_in_place(*node, target);
  }
}

void AutogradMeta::index_written(Tensor& target, std::span<const Tensor> indices,
                                 const Tensor& values, std::int64_t, bool accumulate) {
  if (recording_suspended()) return;
  const Needs needs = detail::needs_of(target, values);
  if (needs.all() == 0) return;
  auto node = make_intrusive<IndexPutNode>(indices, values, accumulate);
  detail::connect(*node, needs.grads, target, values);
  if (anomaly_enabled()) [[unlikely]]
    detail::note_call(*node);
  if (needs.grads != 0) rebase_history(target, node);
  if (needs.tangents != 0)
    TangentInputs(needs.tangents, target, values).propagate_in_place(*node, target);
}

namespace {

// `replaced`: a node that is to be dropped once no lock is held, since it frees what it saved.
Edge current_edge(const Tensor& t, NodePtr* replaced) {
  AutogradMeta& meta = *meta_of(t);
  const std::lock_guard lock(meta.lock_);
  if (meta.base_.defined() && !meta.made_without_grad_ && needs_grad(meta.base_) &&
      meta.view_version_ != t.version()) {
    // The memory was changed since, through the base or another view: what stands there now is what
    // the base's history says.
    auto node = make_intrusive<ViewNode>(ViewRecord(meta.base_, t));
    node->edges()[0] = gradient_edge(meta.base_);
    *replaced = std::exchange(meta.grad_fn_, std::move(node));
    meta.output_nr_ = 0;
    meta.view_version_ = t.version();
    meta.requires_grad_ = true;
  }
  if (meta.grad_fn_) return {meta.grad_fn_, meta.output_nr_};
  if (!meta.requires_grad_) return {};
  NodePtr accumulator = meta.accumulator_.lock();
  if (!accumulator) {
    accumulator = make_accumulator(t);
    meta.accumulator_ = WeakIntrusivePtr<Node>(accumulator);
  }
  return {std::move(accumulator), 0};
}

}  // namespace

Edge gradient_edge(const Tensor& t) {
  NodePtr replaced;
  Edge edge = current_edge(t, &replaced);
  if (replaced) drop_node(std::move(replaced));
  return edge;
}

void detail::Saveable::copy_values() {
  const ops::KeyGuard below(DispatchKey::kAutograd);
  kept_.set_data(clone(out_.detach()));
  // Its tangents are about to be overwritten, too.
  for (std::size_t i = 0; i < forward_depth(); ++i) {
    const std::uint64_t level = forward_levels.ids[i];
    const AutogradMeta* meta = meta_of(out_);
    const Tensor tangent = meta == nullptr ? Tensor() : meta->fw_grad(level, out_);
    if (!tangent.defined()) continue;
    const RecordAgain record(grad_enabled());
    ensure_meta(kept_).set_fw_grad(clone(tangent), kept_, level, false);
  }
  if (!needs_grad(out_)) return;
  // The values' history, which is about to be replaced: for gradients of gradients.
  Edge edge = gradient_edge(out_);
  AutogradMeta& meta = ensure_meta(kept_);
  meta.requires_grad_ = true;
  meta.grad_fn_ = std::move(edge.node);
  meta.output_nr_ = edge.output_nr;
}

void detail::refuse_complex(const char* op) {
  throw InvalidArgument(fmt::format(
      "{}: it has no gradient for complex tensors; detach() them, or write it with operators that "
      "have one (docs/autograd.md lists them)",
      op));
}

void attach_history(Tensor& result, NodePtr node, std::uint32_t output_nr) {
  if (!can_have_gradient(result.dtype())) return;
  AutogradMeta* meta = meta_of(result);
  if (meta == nullptr || !meta->base_.defined()) {
    // What an operator returns as it got it must not lose its own history.
    if (meta != nullptr || result.use_count() != 1) [[unlikely]]
      result = Tensor(result.impl()->shallow_copy(true, true));
    auto made = std::make_unique<AutogradMeta>();
    meta = made.get();
    result.impl()->set_autograd_meta(std::move(made));
  }
  meta->requires_grad_ = true;
  meta->grad_fn_ = std::move(node);
  meta->output_nr_ = output_nr;
}

}  // namespace tenon::autograd
