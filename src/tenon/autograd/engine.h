// The walk backward.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tenon/autograd/meta.h"
#include "tenon/base/inline_vector.h"

namespace tenon::autograd {

// One backward, on the calling thread.
//
//   discover   every node that the roots lead to, once; each is claimed, and counts the edges that
//              lead to it: the gradients that it must wait for
//   run        nodes whose gradients are complete, the newest first; what they saved is released
//
// A node's counter and its gradient so far lie in the node itself, so a walk needs no map. A node
// that another backward has claimed (on another thread, or the one around this one) has them in
// `foreign_` instead. O(nodes + edges); no recursion. When it ends, by an exception too, no node is
// claimed any more.
class GraphTask {
 public:
  struct Options {
    bool retain_graph;
    bool create_graph;
    bool accumulate;  // into leaves; else gradients are only captured
  };

  explicit GraphTask(const Options& options) : options_(options) {}
  ~GraphTask();
  GraphTask(const GraphTask&) = delete;
  GraphTask& operator=(const GraphTask&) = delete;

  // Before run(): where to begin, and which gradients to keep.
  void add_root(Edge edge, Tensor gradient) { roots_.push_back({std::move(edge), gradient}); }
  void capture(const Edge& edge) { captures_.push_back({edge, {}}); }
  void run();
  Tensor& captured(std::size_t i) { return captures_[i].gradient; }

  bool retains_graph() const { return options_.retain_graph; }
  // BackwardCall::taker.
  GradientTaker* taker_at(const Edge& edge, DType dtype);

 private:
  struct Root {
    Edge edge;
    Tensor gradient;
  };
  struct Capture {
    Edge edge;
    Tensor gradient;
  };
  struct Foreign {
    std::uint32_t dependencies = 0;
    std::uint8_t marks = 0;
    Tensor pending;
  };
  struct Scratch {
    std::uint32_t& dependencies;
    std::uint8_t& marks;
    Tensor& pending;
  };

  static constexpr std::uint8_t kNeeded = 1;    // leads to a captured gradient
  static constexpr std::uint8_t kCaptured = 2;  // some gradient of its outputs is kept
  static constexpr std::uint8_t kVisited = 4;

  bool selective() const { return !captures_.empty() || !options_.accumulate; }
  bool owns(const Node& node) const {
    return node.owner_.load(std::memory_order_relaxed) == static_cast<const void*>(this);
  }
  Scratch scratch(Node& node);
  void discover(Node& node);
  void find_needed();
  void give(const Edge& edge, Tensor&& gradient);
  void arrived(Node& node, const Scratch& of_node);
  void run_node(Node& node);
  void run_backward(Node& node, std::span<Tensor> grads);
  std::uint64_t wanted_edges(Node& node);
  void pass_on(Node& node, std::span<Tensor> gradients);
  void apply_tensor_hooks(Node& node, std::span<Tensor> grads);
  void add_pending(Tensor& pending, Tensor&& gradient) const;
  std::span<Tensor> take_pending(Node& node, Tensor& single, std::vector<Tensor>& several);

  const Options options_;
  std::vector<Root> roots_;
  std::vector<Capture> captures_;
  InlineVector<Node*, 64> seen_;
  InlineVector<Node*, 32> ready_;  // a heap by sequence
  std::unordered_map<Node*, Foreign> foreign_;
  std::map<std::pair<Node*, std::uint32_t>, Tensor> more_pending_;  // of outputs other than 0
};

}  // namespace tenon::autograd
