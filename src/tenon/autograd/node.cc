#include "tenon/autograd/node.h"

#include "tenon/autograd/engine.h"
#include "tenon/autograd/meta.h"
#include "tenon/autograd/record.h"
#include "tenon/tensor/factories.h"

namespace tenon::autograd {
namespace {

struct DeadNodes {
  Node* first = nullptr;
  bool draining = false;
};
constinit thread_local DeadNodes dead_nodes;

}  // namespace

Node::~Node() = default;

NodeExtra& Node::ensure_extra() {
  if (extra_ == nullptr) extra_ = std::make_unique<NodeExtra>();
  return *extra_;
}

void detail::keep_shapes(Node& node, std::span<const Tensor* const> arguments,
                         const Tensor& result) {
  std::vector<SymSizes>& shapes = node.ensure_extra().shapes;
  for (const Tensor* t : arguments)
    shapes.push_back(t->defined() ? tenon::detail::sym_sizes_of(*t) : SymSizes());
  shapes.push_back(tenon::detail::sym_sizes_of(result));
}

void Node::release_resources() {
  release_saved();
  extra_.reset();
  drop_edges();
}

void Node::drop_edges() {
  for (std::uint32_t i = 0; i < edge_count_; ++i) drop_node(std::move(edges_[i].node));
}

void drop_last(Node* node) {
  node->owner_.store(dead_nodes.first, std::memory_order_relaxed);
  dead_nodes.first = node;
  if (dead_nodes.draining) return;
  dead_nodes.draining = true;
  while (dead_nodes.first != nullptr) {
    Node* dying = dead_nodes.first;
    dead_nodes.first = static_cast<Node*>(dying->owner_.load(std::memory_order_relaxed));
    dying->owner_.store(nullptr, std::memory_order_relaxed);
    NodePtr::reclaim(dying).reset();
  }
  dead_nodes.draining = false;
}

Tensor Node::tangent(std::span<const Tensor> tangents, const Tensor& result) {
  if (is_complex(result.dtype())) detail::refuse_complex(name());
  for (const Tensor& t : tangents)
    if (t.defined() && is_complex(t.dtype())) detail::refuse_complex(name());
  const RecordAgain record;
  const Tensor probe = zeros_like(result.detach());
  probe.set_requires_grad(true);
  std::vector<Tensor> out(tangents.size());
  std::vector<Tensor> outputs, weights;
  Tensor gradient = probe;
  BackwardCall call{&gradient, out.data(), 0};
  for (std::size_t i = 0; i < tangents.size(); ++i)
    if (tangents[i].defined()) call.wanted |= std::uint64_t{1} << (i < 63 ? i : 63);
  backward(call);
  for (std::size_t i = 0; i < tangents.size(); ++i) {
    if (!tangents[i].defined() || !out[i].defined() || !out[i].requires_grad()) continue;
    outputs.push_back(out[i]);
    weights.push_back(tangents[i]);
  }
  if (outputs.empty()) return {};
  GradOptions options;
  options.create_graph = true;
  options.allow_unused = true;
  const Tensor inputs[] = {probe};
  return grad(outputs, inputs, weights, options)[0];
}

}  // namespace tenon::autograd
