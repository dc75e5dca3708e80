#include "tenon/autograd/autograd.h"

#include <fmt/format.h>

#include <optional>

#include "tenon/autograd/accumulator.h"
#include "tenon/autograd/engine.h"
#include "tenon/autograd/forward_mode.h"
#include "tenon/base/error.h"
#include "tenon/memory/registry.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/defined.h"
#include "tenon/tensor/factories.h"

namespace tenon::autograd {
namespace {

// The gradient that a walk begins with, checked.
Tensor root_gradient(const char* what, const Tensor& root, const Tensor& given) {
  if (!root.defined() || !needs_grad(root))
    throw InvalidArgument(
        fmt::format("{}: a tensor to begin with requires no gradient: it depends on no tensor with "
                    "set_requires_grad(true), or was made under NoGradGuard",
                    what));
  if (given.defined()) {
    if (!(given.sizes() == root.sizes()))
      throw InvalidArgument(fmt::format("{}: a gradient of shape {} for a tensor of shape {}", what,
                                        to_string(given.sizes()), to_string(root.sizes())));
    return given.dtype() == root.dtype() ? given : to(given, root.dtype());
  }
  if (root.numel() != 1)
    throw InvalidArgument(fmt::format(
        "{}: a tensor of shape {} has more than one element: give its gradient, or take "
        "a sum or mean first",
        what, to_string(root.sizes())));
  if (is_complex(root.dtype()))
    throw InvalidArgument(fmt::format(
        "{}: a complex tensor has no gradient of its own; give one, or take real() or abs() first",
        what));
  return full(root.sizes(), 1, root.dtype(), root.device());
}

void check_counts(const char* what, std::size_t roots, std::size_t gradients) {
  if (gradients != 0 && gradients != roots)
    throw InvalidArgument(
        fmt::format("{}: {} gradients for {} tensors; give one for each (undefined: of one element)"
                    " or none",
                    what, gradients, roots));
}

// What holds on this thread during a walk: where memory comes from, and whether it is recorded.
class WalkGuards {
 public:
  WalkGuards(bool create_graph, Allocator* allocator, Device device)
      : keys_(ops::detail::thread_keys), mode_(create_graph) {
    if (allocator != nullptr) allocator_.emplace(device, *allocator);
    DispatchKeySet& excluded = ops::detail::thread_keys.excluded;
    excluded = create_graph || forward_depth() != 0 ? excluded.remove(DispatchKey::kAutograd)
                                                    : excluded.add(DispatchKey::kAutograd);
  }
  ~WalkGuards() { ops::detail::thread_keys = keys_; }
  WalkGuards(const WalkGuards&) = delete;
  WalkGuards& operator=(const WalkGuards&) = delete;

 private:
  const ops::detail::ThreadKeys keys_;
  const GradModeGuard mode_;
  std::optional<AllocatorGuard> allocator_;
};

template <typename Entry, typename Hook>
HookHandle add_entry(const NodePtr& node, NodeExtra::Hooks<Entry> NodeExtra::*list, Hook&& entry) {
  NodeExtra& extra = node->ensure_extra();
  const std::uint64_t id = extra.next_id++;
  (extra.*list).emplace_back(id, std::forward<Hook>(entry));
  return HookHandle([weak = WeakIntrusivePtr<Node>(node), list, id] {
    if (const NodePtr alive = weak.lock())
      std::erase_if(alive->extra()->*list, [&](const auto& e) { return e.first == id; });
  });
}

Edge required_edge(const char* what, const Tensor& tensor) {
  if (!tensor.defined() || !needs_grad(tensor))
    throw InvalidArgument(fmt::format("{}: the tensor requires no gradient", what));
  return gradient_edge(tensor);
}

}  // namespace

void backward(const Tensor& root, const Tensor& gradient, BackwardOptions options) {
  backward(std::span(&root, 1), std::span(&gradient, 1), options);
}

void backward(std::span<const Tensor> roots, std::span<const Tensor> gradients,
              BackwardOptions options) {
  check_counts("backward", roots.size(), gradients.size());
  if (roots.empty()) return;
  GraphTask task({options.retain_graph || options.create_graph, options.create_graph, true});
  const WalkGuards guards(options.create_graph, options.allocator,
                          roots[0].defined() ? roots[0].device() : Device{});
  for (std::size_t i = 0; i < roots.size(); ++i) {
    Tensor first = root_gradient("backward", roots[i], gradients.empty() ? Tensor() : gradients[i]);
    task.add_root(gradient_edge(roots[i]), std::move(first));
  }
  task.run();
}

std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> grad_outputs, GradOptions options) {
  check_counts("grad", outputs.size(), grad_outputs.size());
  if (outputs.empty()) throw InvalidArgument("grad: no outputs");
  GraphTask task({options.retain_graph || options.create_graph, options.create_graph, false});
  const WalkGuards guards(options.create_graph, options.allocator,
                          outputs[0].defined() ? outputs[0].device() : Device{});
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    Tensor first =
        root_gradient("grad", outputs[i], grad_outputs.empty() ? Tensor() : grad_outputs[i]);
    task.add_root(gradient_edge(outputs[i]), std::move(first));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !needs_grad(inputs[i]))
      throw InvalidArgument(fmt::format("grad: input {} requires no gradient", i));
    task.capture(gradient_edge(inputs[i]));
  }
  task.run();
  std::vector<Tensor> found;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    found.push_back(std::move(task.captured(i)));
    if (!found.back().defined() && !options.allow_unused)
      throw InvalidArgument(
          fmt::format("grad: the outputs do not depend on input {} of shape {}; allow_unused gives "
                      "an undefined tensor instead",
                      i, to_string(inputs[i].sizes())));
  }
  return found;
}

NodePtr grad_fn(const Tensor& tensor) {
  tenon::detail::check_defined("grad_fn", tensor);
  AutogradMeta* meta = meta_of(tensor);
  if (meta == nullptr || !meta->needs_grad()) return {};
  if (meta->base_.defined()) static_cast<void>(gradient_edge(tensor));  // brought up to date
  return meta->grad_fn_;
}

NodePtr grad_accumulator(const Tensor& leaf) {
  if (!needs_grad(leaf)) return {};
  if (!is_leaf(leaf))
    throw InvalidArgument(
        fmt::format("grad_accumulator: a tensor made by {} is no leaf", grad_fn(leaf)->name()));
  return gradient_edge(leaf).node;
}

std::uint32_t output_nr(const Tensor& tensor) {
  tenon::detail::check_defined("output_nr", tensor);
  const AutogradMeta* meta = meta_of(tensor);
  return meta == nullptr ? 0 : meta->output_nr_;
}

bool is_leaf(const Tensor& tensor) {
  tenon::detail::check_defined("is_leaf", tensor);
  return !grad_fn(tensor);
}

void retain_grad(const Tensor& tensor) {
  const Edge edge = required_edge("retain_grad", tensor);
  AutogradMeta& meta = *meta_of(tensor);
  if (meta.retains_grad_ || !meta.grad_fn_) return;
  meta.retains_grad_ = true;
  edge.node->ensure_extra().retained.push_back(
      {WeakIntrusivePtr<TensorImpl>(tensor.impl_ptr()), edge.output_nr});
}

bool retains_grad(const Tensor& tensor) {
  tenon::detail::check_defined("retains_grad", tensor);
  const AutogradMeta* meta = meta_of(tensor);
  return meta != nullptr && meta->retains_grad_;
}

void set_grad(const Tensor& tensor, const Tensor& gradient) {
  tenon::detail::check_defined("set_grad", tensor);
  if (gradient.defined()) {
    const bool fits = gradient.sizes() == tensor.sizes() && gradient.dtype() == tensor.dtype() &&
                      gradient.device() == tensor.device();
    if (!fits)
      throw InvalidArgument(fmt::format("set_grad: a gradient of {} {} for a tensor of {} {}",
                                        dtype_name(gradient.dtype()), to_string(gradient.sizes()),
                                        dtype_name(tensor.dtype()), to_string(tensor.sizes())));
  } else if (tensor.impl()->autograd_meta() == nullptr) {
    return;
  }
  tensor.impl()->ensure_autograd_meta().mutable_grad() = gradient;
}

void watch_views(const Tensor& base) {
  tenon::detail::check_defined("watch_views", base);
  base.impl()->ensure_autograd_meta();
}

HookHandle register_hook(const Tensor& tensor, TensorHook hook) {
  const Edge edge = required_edge("register_hook", tensor);
  AutogradMeta& meta = *meta_of(tensor);
  HookHandle handle =
      add_entry(edge.node, &NodeExtra::tensor_hooks, std::pair(edge.output_nr, std::move(hook)));
  // A leaf's accumulator lives as long as a graph; its hooks as long as the leaf.
  if (!meta.grad_fn_) keep_accumulator(meta, edge.node);
  return handle;
}

HookHandle register_post_accumulate_hook(const Tensor& leaf, AccumulateHook hook) {
  const Edge edge = required_edge("register_post_accumulate_hook", leaf);
  if (!edge.node->is_accumulator())
    throw InvalidArgument("register_post_accumulate_hook: the tensor is no leaf");
  HookHandle handle = add_entry(edge.node, &NodeExtra::accumulate_hooks, std::move(hook));
  keep_accumulator(*meta_of(leaf), edge.node);
  return handle;
}

HookHandle set_gradient_taker(const Tensor& leaf, std::shared_ptr<GradientTaker> taker) {
  const Edge edge = required_edge("set_gradient_taker", leaf);
  if (!edge.node->is_accumulator())
    throw InvalidArgument("set_gradient_taker: the tensor is no leaf");
  std::shared_ptr<GradientTaker>& place = edge.node->ensure_extra().taker;
  if (place != nullptr)
    throw InvalidArgument(
        "set_gradient_taker: this leaf has a taker already; remove it first");
  const GradientTaker* const ours = taker.get();
  place = std::move(taker);
  keep_accumulator(*meta_of(leaf), edge.node);
  return HookHandle([weak = WeakIntrusivePtr<Node>(edge.node), ours] {
    const NodePtr alive = weak.lock();
    if (alive && alive->extra()->taker.get() == ours) alive->extra()->taker = nullptr;
  });
}

namespace {

const NodePtr& required_node(const char* what, const NodePtr& node) {
  if (!node)
    throw InvalidArgument(fmt::format(
        "{}: the node is null: grad_fn() of a leaf and of a tensor without gradient is", what));
  return node;
}

}  // namespace

HookHandle register_pre_hook(const NodePtr& node, NodePreHook hook) {
  return add_entry(required_node("register_pre_hook", node), &NodeExtra::pre_hooks,
                   std::move(hook));
}

HookHandle register_post_hook(const NodePtr& node, NodePostHook hook) {
  return add_entry(required_node("register_post_hook", node), &NodeExtra::post_hooks,
                   std::move(hook));
}

const char* node_name(const NodePtr& node) { return required_node("node_name", node)->name(); }

std::vector<NodePtr> next_nodes(const NodePtr& node) {
  std::vector<NodePtr> next;
  for (const Edge& edge : required_node("next_nodes", node)->edges()) next.push_back(edge.node);
  return next;
}

}  // namespace tenon::autograd
