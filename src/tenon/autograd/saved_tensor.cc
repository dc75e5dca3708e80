#include "tenon/autograd/saved_tensor.h"

#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "tenon/autograd/forward_mode.h"
#include "tenon/autograd/meta.h"
#include "tenon/base/error.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/dim_labels.h"

namespace tenon::autograd {
namespace {

thread_local std::shared_ptr<PackHooks> pack_hooks;
constinit thread_local bool recompute_cheap = true;

constexpr std::int64_t kFewElements = 4096;
constexpr int kMostPasses = 4;

// A view whose base may be changed in place while gradients are recorded: the base would then come
// to hold the node that saved the view. A leaf that requires a gradient refuses such a change.
bool views_what_may_change(const Tensor& t) {
  const AutogradMeta* meta = meta_of(t);
  if (meta == nullptr || !meta->base_.defined()) return false;
  const AutogradMeta* base = meta_of(meta->base_);
  return base == nullptr || base->grad_fn_ || !base->requires_grad_;
}

void place(const Tensor& t, Edge edge) {
  AutogradMeta& meta = ensure_meta(t);
  meta.requires_grad_ = true;
  meta.grad_fn_ = std::move(edge.node);
  meta.output_nr_ = edge.output_nr;
}

// Its values and its place in the graph, but not its base.
Tensor without_base(const Tensor& view) {
  Tensor alone(view.impl()->shallow_copy(true, false));
  if (forward_depth() != 0) [[unlikely]]
    copy_tangents(view, alone);
  if (needs_grad(view)) place(alone, gradient_edge(view));
  return alone;
}

// The tensor at that place in the graph, where that matters.
Tensor placed(const Tensor& t, Edge edge) {
  if (!grad_enabled() || !edge.node) {
    drop_node(std::move(edge.node));
    return t;
  }
  Tensor at(t.impl()->shallow_copy(true, false));
  place(at, std::move(edge));
  return at;
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

// What the hooks made, and the tensor's place in the graph, which they do not see.
struct PackedTensor {
  std::shared_ptr<PackHooks> hooks;
  SavedTensorHooks::Packed value;
  Edge edge;  // of an input
  bool is_result = false;
};

// How to make a tensor again, or which tensor to keep once that is asked for.
struct Recipe {
  NodePtr maker;
  int passes = 0;
  Edge edge;  // the tensor's place in the graph
  VariableVersion version;  // disabled: changes since do not matter
  DimVector sizes;  // the maker's result may have others: the tensor is a view then
  WeakIntrusivePtr<TensorImpl> noted;
};

SavedTensor::SavedTensor() = default;
SavedTensor::~SavedTensor() {
  if (packed_) drop_node(std::move(packed_->edge.node));
  drop_recipe();
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
  if (keep_recipe(input))
    recipe_->version = input.impl()->version_counter();
  else
    keep(input);
}

void SavedTensor::keep(const Tensor& input) {
  tensor_ = views_what_may_change(input) ? without_base(input) : input;
  version_ = input.version();
  state_ = State::kInput;
}

// What a call left, and of which `input` is a dense view, or which it is; undefined: there is none.
Tensor SavedTensor::result_behind(const Tensor& input) {
  const AutogradMeta* meta = meta_of(input);
  if (meta == nullptr || !input.is_contiguous() || input.impl()->has_own_version_counter())
    return {};
  if (!meta->base_.defined()) return input;
  const Tensor& base = meta->base_;
  return base.is_contiguous() && base.numel() == input.numel() ? base : Tensor();
}

bool SavedTensor::keep_recipe(const Tensor& input) {
  const bool is_few = !tenon::detail::is_labelled(input) && input.numel() < kFewElements;
  if (is_few || !recompute_cheap || forward_depth() != 0 || pack_hooks != nullptr) return false;
  const Tensor made = result_behind(input);
  if (!made.defined()) return false;
  const AutogradMeta& meta = *meta_of(made);
  if (!meta.grad_fn_ || meta.output_nr_ != 0 || made.version() != meta.view_version_) return false;
  Node& maker = *meta.grad_fn_;
  int passes = 0;
  {
    const std::lock_guard lock(maker.lock());
    passes = maker.has_recompute() ? maker.ready_recompute() : Node::kNoRecipe;
    if (passes > kMostPasses || tenon::detail::has_fewer_elements(input, kFewElements))
      return false;
    maker.add_recipe();
  }
  recipe_ = std::make_unique<Recipe>();
  recipe_->maker = meta.grad_fn_;
  recipe_->passes = passes;
  recipe_->edge = gradient_edge(input);
  recipe_->sizes = input.sizes().to_vector();
  version_ = input.version();
  state_ = State::kRecipe;
  return true;
}

void SavedTensor::note(const Tensor& input) {
  if (!recompute_cheap || forward_depth() != 0 || pack_hooks != nullptr) return;
  if (input.is_wrapped_number()) return keep(input);
  if (keep_recipe(input) || input.numel() < kFewElements || !needs_grad(input) || is_leaf(input))
    return;
  recipe_ = std::make_unique<Recipe>();
  recipe_->noted = WeakIntrusivePtr<TensorImpl>(input.impl_ptr());
  version_ = input.version();
  state_ = State::kNoted;
}

int SavedTensor::ready_recompute() {
  if (state_ == State::kInput) return 0;
  if (state_ == State::kRecipe) return recipe_->passes;
  if (state_ != State::kNoted || pack_hooks != nullptr) return Node::kNoRecipe;
  const Tensor input(recipe_->noted.lock());
  const bool is_kept_anyway = input.defined() && input.use_count() > 1;
  if (!is_kept_anyway || input.version() != version_) return Node::kNoRecipe;
  recipe_.reset();
  keep(input);
  return 0;
}

void SavedTensor::drop_recipe() {
  if (!recipe_ || !recipe_->maker) return;
  recipe_->maker->remove_recipe();
  drop_node(std::move(recipe_->maker));
  drop_node(std::move(recipe_->edge.node));
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
  State state;
  {
    const std::lock_guard lock(node.lock());
    state = node.is_released() ? State::kReleased : state_;
    if (state == State::kReleased) [[unlikely]]
      refuse_released(node);
    t = tensor_;
  }
  if (state == State::kPacked) [[unlikely]]
    return unpack(node);
  if (state == State::kRecipe) [[unlikely]]
    return make_again(node);
  if (!t.defined()) return t;
  if (t.version() != version_) [[unlikely]]
    refuse_changed(node, t.sizes(), t.version());
  if (state == State::kResult && grad_enabled()) {
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
    if (node.is_released() || packed_ == nullptr) refuse_released(node);
    hooks = packed_->hooks;
    value = packed_->value;
    edge = packed_->is_result ? Edge{node.self(), 0} : packed_->edge;
  }
  Tensor t = [&] {
    const RecordAgain again(false);
    return hooks->unpack(value);
  }();
  if (!t.defined())
    throw InvalidArgument(
        fmt::format("backward: the hook that unpacks what {} saved gave nothing", node.name()));
  return placed(t, std::move(edge));
}

Tensor SavedTensor::make_again(const Node& node) const {
  NodePtr maker;
  Edge edge;
  DimVector sizes;
  {
    const std::lock_guard lock(node.lock());
    if (node.is_released() || recipe_ == nullptr) refuse_released(node);
    if (recipe_->version.enabled() && recipe_->version.current_version() != version_)
      refuse_changed(node, recipe_->sizes, recipe_->version.current_version());
    maker = recipe_->maker;
    edge = recipe_->edge;
    sizes = recipe_->sizes;
  }
  Tensor t = [&] {
    const RecordAgain again(false);
    const Tensor made = contiguous(maker->recompute());
    return made.sizes() == sizes ? made : made.view(sizes);
  }();
  drop_node(std::move(maker));
  return placed(t, std::move(edge));
}

void SavedTensor::release() {
  if (state_ == State::kEmpty) return;
  tensor_ = Tensor();
  if (packed_) drop_node(std::move(packed_->edge.node));
  packed_.reset();
  drop_recipe();
  recipe_.reset();
  state_ = State::kReleased;
}

void SavedTensor::release_early(const Node& node) {
  SavedTensor freed;
  const std::lock_guard lock(node.lock());
  if (state_ == State::kEmpty || node.is_released()) return;
  freed.tensor_ = std::move(tensor_);
  freed.packed_ = std::move(packed_);
  freed.recipe_ = std::move(recipe_);
  freed.state_ = std::exchange(state_, State::kReleased);
}

void SavedTensor::refuse_released(const Node& node) const {
  throw InvalidArgument(fmt::format(
      "backward: {} was passed before, and what it saved is gone; give retain_graph to the first "
      "backward to pass the graph again",
      node.name()));
}

void SavedTensor::refuse_changed(const Node& node, IntList sizes, std::uint32_t now) const {
  throw InvalidArgument(
      fmt::format("backward: a tensor of shape {} that {} saved for its gradient was changed in "
                  "place: it is at "
                  "version {}, and version {} was saved; clone it before the change{}",
                  to_string(sizes), node.name(), now, version_,
                  node.extra() != nullptr && !node.extra()->made_at.empty()
                      ? ". The call:\n" + node.extra()->made_at
                      : "; AnomalyMode tells where the call was made"));
}

}  // namespace tenon::autograd
