#include "tenon/autograd/saved_tensor.h"

#include <fmt/format.h>

#include <mutex>

#include "tenon/autograd/forward_mode.h"
#include "tenon/autograd/meta.h"
#include "tenon/base/error.h"

namespace tenon::autograd {
namespace {

thread_local std::shared_ptr<PackHooks> pack_hooks;
constinit thread_local bool recompute_cheap = false;

// A view whose base may be changed in place while gradients are recorded: the base would then come
// to hold the node that saved the view. A leaf that requires a gradient refuses such a change.
bool views_what_may_change(const Tensor& t) {
  const AutogradMeta* meta = meta_of(t);
  if (meta == nullptr || !meta->base_.defined()) return false;
  const AutogradMeta* base = meta_of(meta->base_);
  return base == nullptr || base->grad_fn_ || !base->requires_grad_;
}

// Its values and its place in the graph, but not its base.
Tensor without_base(const Tensor& view) {
  Tensor alone(view.impl()->shallow_copy(true, false));
  if (forward_depth() != 0) [[unlikely]]
    copy_tangents(view, alone);
  if (!needs_grad(view)) return alone;
  Edge edge = gradient_edge(view);
  AutogradMeta& meta = ensure_meta(alone);
  meta.requires_grad_ = true;
  meta.grad_fn_ = std::move(edge.node);
  meta.output_nr_ = edge.output_nr;
  return alone;
}

}  // namespace

const std::shared_ptr<PackHooks>& current_pack_hooks() { return pack_hooks; }

SavedTensorHooks::SavedTensorHooks(Pack pack, Unpack unpack) {
  pack_hooks =
      std::make_shared<PackHooks>(PackHooks{std::move(pack), std::move(unpack), pack_hooks});
}
SavedTensorHooks::~SavedTensorHooks() { pack_hooks = pack_hooks->outer; }

RecomputeCheap::RecomputeCheap(bool on) : previous_(std::exchange(recompute_cheap, on)) {}
RecomputeCheap::~RecomputeCheap() { recompute_cheap = previous_; }

// What the hooks made, and the tensor's place in the graph, which they do not see. Without hooks
// the node of `edge` makes the values again.
struct PackedTensor {
  std::shared_ptr<PackHooks> hooks;
  SavedTensorHooks::Packed value;
  Edge edge;  // of an input
  bool is_result = false;
};

SavedTensor::SavedTensor() = default;
SavedTensor::~SavedTensor() {
  if (packed_) drop_node(std::move(packed_->edge.node));
}

void SavedTensor::save(const Tensor& input) {
  if (!input.defined()) {
    state_ = State::kInput;
    return;
  }
  if (input.is_inference()) [[unlikely]]
    throw InvalidArgument(fmt::format(
        "an inference tensor of shape {} cannot be saved for backward; clone it outside "
        "inference mode",
        to_string(input.sizes())));
  if (pack_hooks != nullptr) [[unlikely]]
    if (!(needs_grad(input) && is_leaf(input))) return pack(input, false);
  if (recompute_cheap && keep_recipe(input)) [[unlikely]]
    return;
  tensor_ = views_what_may_change(input) ? without_base(input) : input;
  version_ = input.version();
  state_ = State::kInput;
}

// Only of a call's result as the call left it: what a view or a change made of it, the call cannot.
bool SavedTensor::keep_recipe(const Tensor& input) {
  const AutogradMeta* meta = meta_of(input);
  if (meta == nullptr || meta->base_.defined() || !meta->grad_fn_ || input.version() != 0 ||
      !meta->grad_fn_->is_cheap_to_recompute() || forward_depth() != 0)
    return false;
  packed_ = std::make_unique<PackedTensor>();
  packed_->edge = {meta->grad_fn_, meta->output_nr_};
  state_ = State::kPacked;
  return true;
}

void SavedTensor::save_result(const Tensor& result) {
  if (pack_hooks != nullptr) [[unlikely]]
    return pack(result, true);
  tensor_ = Tensor(result.impl()->shallow_copy(true, false));
  version_ = result.version();
  state_ = State::kResult;
  if (forward_depth() != 0) [[unlikely]]
    copy_tangents(result, tensor_);
}

void SavedTensor::pack(const Tensor& t, bool is_result) {
  packed_ = std::make_unique<PackedTensor>();
  packed_->hooks = pack_hooks;
  packed_->is_result = is_result;
  if (!is_result && needs_grad(t)) packed_->edge = gradient_edge(t);
  const RecordAgain again(false);
  packed_->value = pack_hooks->pack(t.detach());
  state_ = State::kPacked;
}

Tensor SavedTensor::get(const Node& node) const {
  Tensor t;
  {
    const std::lock_guard lock(node.lock());
    if (state_ == State::kReleased) [[unlikely]]
      refuse_released(node);
    if (state_ == State::kPacked) [[unlikely]]
      t = Tensor();
    else
      t = tensor_;
  }
  if (state_ == State::kPacked) [[unlikely]]
    return unpack(node);
  if (!t.defined()) return t;
  if (t.version() != version_) [[unlikely]]
    refuse_changed(node, t);
  if (state_ == State::kResult && grad_enabled()) {
    Tensor result(t.impl()->shallow_copy(true, false));
    if (forward_depth() != 0) [[unlikely]]
      copy_tangents(t, result);
    AutogradMeta& meta = ensure_meta(result);
    meta.grad_fn_ = node.self();
    meta.requires_grad_ = true;
    return result;
  }
  return t;
}

Tensor SavedTensor::unpack(const Node& node) const {
  std::shared_ptr<PackHooks> hooks;
  SavedTensorHooks::Packed value;
  Edge edge;
  {
    const std::lock_guard lock(node.lock());
    if (packed_ == nullptr) refuse_released(node);
    hooks = packed_->hooks;
    value = packed_->value;
    edge = packed_->is_result ? Edge{node.self(), 0} : packed_->edge;
  }
  Tensor t = [&] {
    const RecordAgain again(false);
    return hooks == nullptr ? edge.node->recompute() : hooks->unpack(value);
  }();
  if (!t.defined())
    throw InvalidArgument(
        fmt::format("backward: the hook that unpacks what {} saved gave nothing", node.name()));
  if (!grad_enabled() || !edge.node) return t;
  Tensor placed(t.impl()->shallow_copy(true, false));
  AutogradMeta& meta = ensure_meta(placed);
  meta.requires_grad_ = true;
  meta.grad_fn_ = std::move(edge.node);
  meta.output_nr_ = edge.output_nr;
  return placed;
}

void SavedTensor::release() {
  if (state_ == State::kEmpty) return;
  tensor_ = Tensor();
  if (packed_) drop_node(std::move(packed_->edge.node));
  packed_.reset();
  state_ = State::kReleased;
}

void SavedTensor::refuse_released(const Node& node) const {
  throw InvalidArgument(fmt::format(
      "backward: {} was passed before, and what it saved is gone; give retain_graph to the first "
      "backward to pass the graph again",
      node.name()));
}

void SavedTensor::refuse_changed(const Node& node, const Tensor& now) const {
  throw InvalidArgument(
      fmt::format("backward: a tensor of shape {} that {} saved for its gradient was changed in "
                  "place: it is at "
                  "version {}, and version {} was saved; clone it before the change{}",
                  to_string(now.sizes()), node.name(), now.version(), version_,
                  node.extra() != nullptr && !node.extra()->made_at.empty()
                      ? ". The call:\n" + node.extra()->made_at
                      : "; AnomalyMode tells where the call was made"));
}

}  // namespace tenon::autograd
