// What a node keeps for its derivative.
#pragma once

#include "tenon/autograd/node.h"

namespace tenon::autograd {

struct PackedTensor;

// A tensor as it was when it was saved. Reading it checks that it was not changed in place since.
// A node's own result is kept without its place in the graph (the node would hold itself), and gets
// it back when read.
//
// Threads: get() and release() take the node's lock; saving happens before the node is seen.
class SavedTensor {
 public:
  SavedTensor();
  ~SavedTensor();

  // An undefined tensor may be saved.
  void save(const Tensor& input);
  void save_result(const Tensor& result);

  // Throws InvalidArgument where it was changed (naming the operator and both versions) or
  // released.
  Tensor get(const Node& node) const;
  bool saved() const { return state_ != State::kEmpty; }
  // Requires: the node's lock is held.
  void release();

 private:
  enum class State : std::uint8_t { kEmpty, kInput, kResult, kPacked, kReleased };

  bool keep_recipe(const Tensor& input);

  void pack(const Tensor& t, bool is_result);
  Tensor unpack(const Node& node) const;
  [[noreturn]] void refuse_released(const Node& node) const;
  [[noreturn]] void refuse_changed(const Node& node, const Tensor& now) const;

  Tensor tensor_;
  std::unique_ptr<PackedTensor> packed_;
  std::uint32_t version_ = 0;
  State state_ = State::kEmpty;
};

// The hooks that this thread's saved tensors pass through; null for none.
struct PackHooks {
  SavedTensorHooks::Pack pack;
  SavedTensorHooks::Unpack unpack;
  std::shared_ptr<PackHooks> outer;
};
const std::shared_ptr<PackHooks>& current_pack_hooks();

}  // namespace tenon::autograd
