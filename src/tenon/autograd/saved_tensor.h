// What a node keeps for its derivative.
#pragma once

#include "tenon/autograd/node.h"

namespace tenon::autograd {

// Note [Results made again]
//
// A saved tensor of kFewElements and more that a cheap call made (element-wise, a norm, cat) is not
// kept, unless RecomputeCheap(false) says so. The saved tensor keeps a recipe: the node of that
// call, whose recompute() makes the values again, the same bits, from what that node saved. Recipes
// build on recipes: of relu(batch_norm(conv(x))), conv's result alone is kept. One may take
// kMostPasses over memory. It stands for a result as the call left it, or a dense view of one.
//
// A node releases what it saved once backward has passed it and no recipe needs it. Backward
// passes the users of a result first, so in the usual order nothing stays longer.
struct PackedTensor;
struct Recipe;

// A tensor as it was when it was saved. Reading it checks that it was not changed in place since.
// A node's own result is kept without its place in the graph (the node would hold itself), and gets
// it back when read.
//
// Threads: get() takes the node's lock; saving happens before the node is seen, and releasing once
// no other thread reads (Node::is_released).
class SavedTensor {
 public:
  SavedTensor();
  ~SavedTensor();

  // An undefined tensor may be saved.
  void save(const Tensor& input);
  void save_result(const Tensor& result);
  // For recompute() alone: keeps a recipe where the tensor has one, or a plain number. Else it only
  // remembers the tensor.
  void note(const Tensor& input);
  // How many passes get() takes. Node::kNoRecipe: it cannot serve a recipe. A noted tensor is kept
  // from now on, if others keep it, too.
  int ready_recompute();

  // Throws InvalidArgument where it was changed (naming the operator and both versions) or
  // released.
  Tensor get(const Node& node) const;
  // Frees memory, so the node's lock is not held.
  void release();
  // The same while others may read it, by a backward that is the last to need it.
  void release_early(const Node& node);

 private:
  enum class State : std::uint8_t { kEmpty, kInput, kResult, kPacked, kRecipe, kNoted, kReleased };

  void keep(const Tensor& input);
  static Tensor result_behind(const Tensor& input);
  bool keep_recipe(const Tensor& input);
  void drop_recipe();
  Tensor make_again(const Node& node) const;

  void pack(const Tensor& t, bool is_result);
  Tensor unpack(const Node& node) const;
  [[noreturn]] void refuse_released(const Node& node) const;
  [[noreturn]] void refuse_changed(const Node& node, IntList sizes, std::uint32_t now) const;

  Tensor tensor_;
  std::unique_ptr<PackedTensor> packed_;
  std::unique_ptr<Recipe> recipe_;
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
