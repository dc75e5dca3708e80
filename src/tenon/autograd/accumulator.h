// The node at a leaf: adds what arrives to the leaf's grad.
#pragma once

#include <limits>
#include <mutex>

#include "tenon/autograd/meta.h"

namespace tenon::autograd {

// Runs before all other nodes that are ready. Takes a gradient over where nothing else holds it and
// it lies as the leaf does; adds in place otherwise (out of place where gradients are recorded).
// Thread-safe: several backwards may add to one leaf.
class AccumulatorNode final : public Node {
 public:
  explicit AccumulatorNode(const Tensor& leaf);
  const char* name() const override { return "grad accumulator"; }
  void backward(const BackwardCall& call) override;
  bool is_accumulator() const override { return true; }

  // The leaf is there, of this dtype, and has no grad yet.
  bool awaits_first(DType dtype) const;

  // From now on the leaf holds the node (which has hooks) instead of the node the leaf.
  void hold_weakly();

 private:
  // The leaf knows the node weakly: without this the two would keep each other's memory.
  void release_resources() override {
    Node::release_resources();
    leaf_ = Tensor();
  }

  Tensor leaf_;  // undefined where it is held weakly
  WeakIntrusivePtr<TensorImpl> weak_;
  std::mutex adding_;  // held while a kernel adds
};

NodePtr make_accumulator(const Tensor& leaf);
// The node lives as long as its leaf.
void keep_accumulator(AutogradMeta& meta, const NodePtr& node);

}  // namespace tenon::autograd
