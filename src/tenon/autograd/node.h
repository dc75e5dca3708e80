// The graph that recorded calls make: nodes, and edges to where gradients go next. A gradient has
// the shape and dtype of its tensor. Errors: what the operators of a derivative throw, and
// std::bad_alloc for a node. Making one is O(edges).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "tenon/autograd/autograd.h"
#include "tenon/base/block_cache.h"
#include "tenon/base/spin_lock.h"
#include "tenon/memory/tag.h"
#include "tenon/tensor/dim_labels.h"

namespace tenon::autograd {

class GradientTaker;
class GraphTask;
class Node;
struct NodeExtra;

// Where the gradient of one input goes: a node and which of its outputs the input was. No node: no
// gradient is needed.
struct Edge {
  NodePtr node;
  std::uint32_t output_nr = 0;
};

// What a node gets and gives when backward passes it.
struct BackwardCall {
  Tensor* grads;         // of its outputs; the node may move from them or write into them if unique
  Tensor* out;           // one for each edge; an undefined one stands for zero
  std::uint64_t wanted;  // bit i: edge i; edges from 63 on share the last bit
  GraphTask* walk = nullptr;  // of a node that is free to use taker() below

  // Of the only output.
  Tensor& grad() const { return grads[0]; }
  // Whether the gradient of edge i is needed.
  bool wants(std::size_t i) const { return (wanted >> (i < 63 ? i : 63) & 1) != 0; }
  // The node is not passed again: it may release what it saved before backward() returns.
  bool is_last() const;
  // Who takes the gradient of edge i in pieces instead of finding it in `out`; null: none.
  GradientTaker* taker(const Node& node, std::size_t i) const;
};

// One recorded call. Subclasses hold what its derivative needs and compute that. Allocated from
// caches of blocks for each thread; edges lie inside the node.
//
// Threads: several backwards may pass a node at once. What it saved is read under its lock, until
// one of them releases it, without the lock: to free memory may take long, or call observers. Its
// scratch fields belong to the backward that claimed it first. Other backwards keep
// theirs in a map.
// Destruction never recurses from node to node (drop_node), so graphs may be of any depth.
class Node : public IntrusiveTarget {
 public:
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node() override;

  // The operator's name. Lives as long as the program.
  virtual const char* name() const = 0;
  // Gradients of the inputs from those of the outputs. With grad_enabled(), by operators that are
  // recorded; else in whatever way is fastest.
  virtual void backward(const BackwardCall& call) = 0;
  // Forward mode: the tangent of `result` from those of the inputs (undefined: zero), in the edges'
  // order. By default it differentiates `backward`, which is linear in the gradient:
  // J t = d/du <J' u, t> for any u.
  virtual Tensor tangent(std::span<const Tensor> tangents, const Tensor& result);
  // Releases what was saved. Called once no other thread reads it.
  virtual void release_saved() {}
  virtual bool is_accumulator() const { return false; }
  // Note [Results made again] in saved_tensor.h. How many passes over memory recompute() takes.
  // From kNoRecipe on it is not possible. Called with the lock held. May keep what recompute()
  // needs and others keep anyway.
  static constexpr int kNoRecipe = 1000;
  virtual int ready_recompute() { return kNoRecipe; }
  // The result's values, to the bit. Requires: the above.
  virtual Tensor recompute() const { return {}; }
  // recompute() would give another dtype or shape than the tensor that the result went into.
  void refuse_recompute() { has_recompute_ = false; }
  bool has_recompute() const { return has_recompute_ && !is_released_; }
  // Releases what was saved as soon as no recipe needs it.
  void end_saved() {
    {
      const std::lock_guard lock(lock_);
      saved_is_over_ = true;
      if (!may_release()) return;
    }
    release_saved();
  }
  // Whether release_saved() has begun. Requires: the lock is held.
  bool is_released() const { return is_released_; }
  // Recipes that need what the node saved. To add one requires the lock.
  void add_recipe() { ++recipes_; }
  void remove_recipe() {
    {
      const std::lock_guard lock(lock_);
      --recipes_;
      if (!may_release()) return;
    }
    release_saved();
  }

  // Where the gradients go; its number among this thread's, newest highest.
  std::span<Edge> edges() const { return {edges_, edge_count_}; }
  std::uint64_t sequence() const { return sequence_; }
  // The call site of memory events (memory/tag.h) when the call was made. Backward allocates under
  // the same site, so a profile can name the layer of its gradients.
  const char* call_site() const { return call_site_; }
  NodeExtra* extra() const { return extra_.get(); }
  NodeExtra& ensure_extra();
  SpinLock& lock() const { return lock_; }
  NodePtr self() const { return NodePtr::retain_copy(const_cast<Node*>(this)); }

  // From the thread's cache of blocks of that size.
  static void* operator new(std::size_t bytes) {
    const std::size_t blocks = (bytes + 31) / 32;
    switch (blocks) {
#define TENON_BLOCKS(n) \
  case n:               \
    return BlockCache<n * 32>::allocate();
      TENON_BLOCKS(3)
      TENON_BLOCKS(4)
      TENON_BLOCKS(5)
      TENON_BLOCKS(6)
      TENON_BLOCKS(7)
      TENON_BLOCKS(8)
      TENON_BLOCKS(9)
      TENON_BLOCKS(10)
#undef TENON_BLOCKS
    }
    return ::operator new(bytes);
  }
  // Back to the cache.
  static void operator delete(void* node, std::size_t bytes) {
    const std::size_t blocks = (bytes + 31) / 32;
    switch (blocks) {
#define TENON_BLOCKS(n) \
  case n:               \
    return BlockCache<n * 32>::deallocate(node);
      TENON_BLOCKS(3)
      TENON_BLOCKS(4)
      TENON_BLOCKS(5)
      TENON_BLOCKS(6)
      TENON_BLOCKS(7)
      TENON_BLOCKS(8)
      TENON_BLOCKS(9)
      TENON_BLOCKS(10)
#undef TENON_BLOCKS
    }
    ::operator delete(node);
  }

 protected:
  Node(Edge* edges, std::size_t edge_count)
      : sequence_(next_sequence_++),
        call_site_(current_tag().call_site),
        edges_(edges),
        edge_count_(static_cast<std::uint32_t>(edge_count)) {}

  // Subclasses that hold the edges call it in their destructor.
  void drop_edges();
  void set_edges(Edge* edges, std::size_t count) {
    edges_ = edges;
    edge_count_ = static_cast<std::uint32_t>(count);
  }
  // The last strong reference is gone, but a hook's handle is not: what the node holds goes now.
  void release_resources() override;
  void set_sequence(std::uint64_t sequence) { sequence_ = sequence; }
  // BackwardCall::grads has so many, undefined where nothing arrived. Requires: 1 or more.
  void set_output_count(std::size_t count) { output_count_ = static_cast<std::uint32_t>(count); }

 private:
  // Whether the caller has to release what was saved: true at most once, after the last recipe that
  // needs it. Requires: the lock is held.
  bool may_release() {
    return recipes_ == 0 && saved_is_over_ && !std::exchange(is_released_, true);
  }

  friend class GraphTask;
  friend void drop_last(Node* node);

  static inline constinit thread_local std::uint64_t next_sequence_ = 1;

  std::uint64_t sequence_;  // newer nodes run first
  const char* call_site_;
  Edge* edges_;
  std::uint32_t edge_count_;

  // --- Of the backward that claimed the node.
  std::uint32_t dependencies_ = 0;     // gradients still to come
  std::atomic<void*> owner_{nullptr};  // the claiming task; links dead nodes
  Tensor pending_;                     // the gradient of output 0 so far
  std::unique_ptr<NodeExtra> extra_;
  mutable SpinLock lock_;
  std::uint8_t marks_ = 0;
  bool saved_is_over_ = false;
  bool is_released_ = false;
  bool has_recompute_ = true;
  std::uint32_t output_count_ = 1;
  std::uint32_t recipes_ = 0;
};

// A node with kEdges edges.
template <std::size_t kEdges>
class NodeOf : public Node {
 public:
  NodeOf() : Node(held_, kEdges) {}
  ~NodeOf() override { drop_edges(); }

 private:
  Edge held_[kEdges];
};

// A node whose number of edges the call decides.
class VariadicNode : public Node {
 public:
  VariadicNode() : Node(nullptr, 0) {}
  ~VariadicNode() override { drop_edges(); }
  // Room for so many. Requires: called once, by a constructor.
  void make_edges(std::size_t count) {
    held_ = std::make_unique<Edge[]>(count);
    set_edges(held_.get(), count);
  }

 private:
  std::unique_ptr<Edge[]> held_;
};

// Hooks, and where the call was made. Few nodes have it.
struct NodeExtra {
  // A tensor whose gradient is kept though it is no leaf.
  struct Retained {
    WeakIntrusivePtr<TensorImpl> tensor;
    std::uint32_t output_nr;
  };
  template <typename Hook>
  using Hooks = std::vector<std::pair<std::uint64_t, Hook>>;  // by id

  std::uint64_t next_id = 0;
  Hooks<std::pair<std::uint32_t, TensorHook>> tensor_hooks;  // with the output's number
  Hooks<NodePreHook> pre_hooks;
  Hooks<NodePostHook> post_hooks;
  Hooks<AccumulateHook> accumulate_hooks;
  std::shared_ptr<GradientTaker> taker;  // of a leaf's gradients
  std::vector<Retained> retained;
  std::vector<SymSizes> shapes;  // of arguments in the edges' order, and the result: KnownShapes
  std::string made_at;  // anomaly mode: the forward call's stack
};

// Lets a reference to a node go. The last one frees the node, then the nodes that only it holds,
// one after the other. The depth of the calls does not grow with the graph.
void drop_last(Node* node);
inline void drop_node(NodePtr&& node) {
  if (node.use_count() > 1)
    node.reset();
  else if (node)
    drop_last(node.release());
}

}  // namespace tenon::autograd
