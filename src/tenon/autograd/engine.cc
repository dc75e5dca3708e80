#include "tenon/autograd/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/autograd/accumulator.h"
#include "tenon/autograd/anomaly.h"
#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/base/error.h"
#include "tenon/memory/tag.h"
#include "tenon/tensor/dim_labels.h"

namespace tenon::autograd {
namespace {

constexpr auto kOlder = [](const Node* a, const Node* b) { return a->sequence() < b->sequence(); };

// A gradient has the symbols of what it is the gradient of.
void run_labelled(Node& node, const BackwardCall& call) {
  const std::vector<SymSizes>& shapes = node.extra()->shapes;
  const KnownShapes known(shapes);
  node.backward(call);
  for (std::size_t i = 0; i < std::min(node.edges().size(), shapes.size()); ++i)
    if (call.out[i].defined() && call.out[i].is_meta() && !call.out[i].impl()->is_labelled())
      tenon::detail::label_known(call.out[i]);
}

}  // namespace

GraphTask::~GraphTask() {
  for (Node* node : seen_) {
    if (!owns(*node)) continue;
    node->pending_ = Tensor();
    node->owner_.store(nullptr, std::memory_order_release);
  }
}

GraphTask::Scratch GraphTask::scratch(Node& node) {
  if (owns(node)) [[likely]]
    return {node.dependencies_, node.marks_, node.pending_};
  Foreign& foreign = foreign_[&node];
  return {foreign.dependencies, foreign.marks, foreign.pending};
}

// Counts an edge to a node, and claims it the first time.
inline void GraphTask::discover(Node& node) {
  if (owns(node)) {
    ++node.dependencies_;
    return;
  }
  void* nobody = nullptr;
  if (node.owner_.compare_exchange_strong(nobody, this, std::memory_order_acquire,
                                          std::memory_order_relaxed)) [[likely]] {
    node.dependencies_ = 1;
    node.marks_ = 0;
    seen_.push_back(&node);
    return;
  }
  const auto [it, is_new] = foreign_.try_emplace(&node);
  ++it->second.dependencies;
  if (is_new) seen_.push_back(&node);
}

void GraphTask::run() {
  const NoNames gradients_have_no_names;
  for (const Root& root : roots_) discover(*root.edge.node);
  for (std::size_t i = 0; i < seen_.size(); ++i)
    for (const Edge& edge : seen_[i]->edges())
      if (edge.node) discover(*edge.node);
  if (selective()) find_needed();
  for (Root& root : roots_) give(root.edge, std::move(root.gradient));
  while (!ready_.empty()) {
    std::pop_heap(ready_.begin(), ready_.end(), kOlder);
    Node* node = ready_.back();
    ready_.pop_back();
    run_node(*node);
  }
}

// Marks the nodes from which a captured one is reached: a depth-first walk that comes back to each
// node after its successors.
void GraphTask::find_needed() {
  for (const Capture& capture : captures_) {
    Node& node = *capture.edge.node;
    const bool seen = owns(node) || foreign_.contains(&node);
    if (seen) scratch(node).marks |= kNeeded | kCaptured;
  }
  struct Frame {
    Node* node;
    std::size_t next;
  };
  std::vector<Frame> stack;
  for (const Root& root : roots_) {
    if ((scratch(*root.edge.node).marks & kVisited) != 0) continue;
    scratch(*root.edge.node).marks |= kVisited;
    stack.push_back({root.edge.node.get(), 0});
    while (!stack.empty()) {
      Frame& frame = stack.back();
      if (frame.next == frame.node->edges().size()) {
        const bool needed = (scratch(*frame.node).marks & kNeeded) != 0;
        stack.pop_back();
        if (needed && !stack.empty()) scratch(*stack.back().node).marks |= kNeeded;
        continue;
      }
      Node* next = frame.node->edges()[frame.next++].node.get();
      if (next == nullptr) continue;
      std::uint8_t& marks = scratch(*next).marks;
      if ((marks & kVisited) == 0) {
        marks |= kVisited;
        stack.push_back({next, 0});
      } else if ((marks & kNeeded) != 0) {
        scratch(*frame.node).marks |= kNeeded;
      }
    }
  }
}

void GraphTask::add_pending(Tensor& pending, Tensor&& gradient) const {
  if (!pending.defined()) {
    pending = std::move(gradient);
  } else if (options_.create_graph || formulas_recorded()) {
    pending = ops::add(pending, gradient);
  } else if (is_exclusive(pending)) {
    ops::add_(pending, gradient);
  } else if (is_exclusive(gradient)) {
    ops::add_(gradient, pending);
    pending = std::move(gradient);
  } else {
    pending = ops::add(pending, gradient);
  }
}

inline void GraphTask::arrived(Node& node, const Scratch& of_node) {
  if (--of_node.dependencies != 0) return;
  if (selective() && (of_node.marks & kNeeded) == 0) return;
  ready_.push_back(&node);
  std::push_heap(ready_.begin(), ready_.end(), kOlder);
}

inline void GraphTask::give(const Edge& edge, Tensor&& gradient) {
  Node& node = *edge.node;
  const Scratch of_node = scratch(node);
  if (gradient.defined()) {
    if (edge.output_nr == 0) [[likely]]
      add_pending(of_node.pending, std::move(gradient));
    else
      add_pending(more_pending_[{&node, edge.output_nr}], std::move(gradient));
  }
  arrived(node, of_node);
}

std::span<Tensor> GraphTask::take_pending(Node& node, Tensor& single,
                                          std::vector<Tensor>& several) {
  if (node.output_count_ == 1) [[likely]]
    return {&single, 1};
  several.reserve(node.output_count_);
  several.push_back(std::move(single));
  auto it = more_pending_.lower_bound({&node, 0});
  while (it != more_pending_.end() && it->first.first == &node) {
    several.resize(it->first.second + 1);
    several[it->first.second] = std::move(it->second);
    it = more_pending_.erase(it);
  }
  several.resize(node.output_count_);
  return several;
}

void GraphTask::run_node(Node& node) {
  const Scratch of_node = scratch(node);
  const std::uint8_t marks = of_node.marks;
  Tensor single = std::move(of_node.pending);
  std::vector<Tensor> several;
  const std::span<Tensor> grads = take_pending(node, single, several);
  if (node.extra() != nullptr) [[unlikely]]
    apply_tensor_hooks(node, grads);
  if ((marks & kCaptured) != 0) [[unlikely]]
    for (Capture& capture : captures_)
      if (capture.edge.node.get() == &node && capture.edge.output_nr < grads.size())
        capture.gradient = grads[capture.edge.output_nr];
  bool any = false;
  for (const Tensor& g : grads) any |= g.defined();
  if (node.is_accumulator()) {
    if (options_.accumulate && any && !selective()) {
      const BackwardCall call{grads.data(), nullptr, 0};
      node.backward(call);
    }
    return;
  }
  if (any) {
    run_backward(node, grads);
  } else {
    for (const Edge& edge : node.edges())
      if (edge.node) give(edge, Tensor());
  }
}

std::uint64_t GraphTask::wanted_edges(Node& node) {
  std::uint64_t wanted = 0;
  std::size_t i = 0;
  for (const Edge& edge : node.edges()) {
    const std::uint64_t bit = std::uint64_t{1} << (i < 63 ? i : 63);
    if (edge.node && (!selective() || (scratch(*edge.node).marks & kNeeded) != 0)) wanted |= bit;
    ++i;
  }
  return wanted;
}

void GraphTask::run_backward(Node& node, std::span<Tensor> grads) {
  constexpr std::size_t kFew = 6;
  Tensor few[kFew];
  std::vector<Tensor> many;
  const std::size_t count = node.edges().size();
  if (count > kFew) many.resize(count);
  const std::span<Tensor> out(count > kFew ? many.data() : few, count);
  const bool is_seen = node.extra() != nullptr && !node.extra()->post_hooks.empty();
  const BackwardCall call{grads.data(), out.data(), wanted_edges(node), is_seen ? nullptr : this};
  if (call.wanted != 0) {
    std::vector<Tensor> kept;  // for the hooks that want to see what the node may overwrite
    if (is_seen) [[unlikely]]
      kept.assign(grads.begin(), grads.end());
    const TagGuard tag({nullptr, node.call_site()});
    if (node.extra() == nullptr || node.extra()->shapes.empty()) [[likely]]
      node.backward(call);
    else
      run_labelled(node, call);
    if (node.extra() != nullptr) [[unlikely]] {
      for (const auto& [id, hook] : NodeExtra::Hooks<NodePostHook>(node.extra()->post_hooks)) {
        const RecordAgain again(options_.create_graph);
        hook(out, kept);
      }
    }
    if (anomaly_enabled()) [[unlikely]]
      check_gradients(node, out);
  }
  if (!options_.retain_graph) node.end_saved();
  pass_on(node, out);
}

GradientTaker* GraphTask::taker_at(const Edge& edge, DType dtype) {
  if (!edge.node || !edge.node->is_accumulator() || edge.node->extra() == nullptr) return nullptr;
  if (selective() || options_.retain_graph || options_.create_graph || anomaly_enabled())
    return nullptr;
  Node& node = *edge.node;
  const NodeExtra& extra = *node.extra();
  const Scratch of_node = scratch(node);
  const bool is_whole = of_node.dependencies == 1 && !of_node.pending.defined() &&
                        static_cast<const AccumulatorNode&>(node).awaits_first(dtype);
  const bool is_watched = !extra.tensor_hooks.empty() || !extra.pre_hooks.empty() ||
                          !extra.post_hooks.empty() || !extra.accumulate_hooks.empty();
  return is_whole && !is_watched ? extra.taker.get() : nullptr;
}

bool BackwardCall::is_last() const { return walk != nullptr && !walk->retains_graph(); }

GradientTaker* BackwardCall::taker(const Node& node, std::size_t i) const {
  return walk == nullptr || !wants(i) ? nullptr : walk->taker_at(node.edges()[i], grads[0].dtype());
}

void GraphTask::pass_on(Node& node, std::span<Tensor> gradients) {
  std::size_t i = 0;
  for (const Edge& edge : node.edges()) {
    if (edge.node) give(edge, std::move(gradients[i]));
    ++i;
  }
}

// In the order in which they were registered; retained grads are kept as the hooks left them.
void GraphTask::apply_tensor_hooks(Node& node, std::span<Tensor> grads) {
  NodeExtra& extra = *node.extra();
  const RecordAgain again(options_.create_graph);
  for (const auto& [id, entry] : decltype(extra.tensor_hooks)(extra.tensor_hooks)) {
    const auto& [output_nr, hook] = entry;
    if (output_nr >= grads.size() || !grads[output_nr].defined()) continue;
    const Tensor changed = hook(grads[output_nr]);
    if (!changed.defined()) continue;
    if (!(changed.sizes() == grads[output_nr].sizes()))
      throw InvalidArgument(fmt::format(
          "backward: a hook gave a gradient of shape {} for a tensor of shape {} made by {}",
          to_string(changed.sizes()), to_string(grads[output_nr].sizes()), node.name()));
    grads[output_nr] = changed;
  }
  for (const NodeExtra::Retained& entry : extra.retained) {
    const Tensor tensor(entry.tensor.lock());
    if (!tensor.defined() || entry.output_nr >= grads.size()) continue;
    const Tensor& g = grads[entry.output_nr];
    if (!g.defined()) continue;
    Tensor& kept = meta_of(tensor)->grad_;
    kept = kept.defined() ? ops::add(kept, g) : options_.create_graph ? g : g.detach();
  }
  for (const auto& [id, hook] : NodeExtra::Hooks<NodePreHook>(extra.pre_hooks)) hook(grads);
}

}  // namespace tenon::autograd
