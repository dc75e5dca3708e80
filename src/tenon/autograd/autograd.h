// Gradients: what programs call. docs/autograd.md is the guide.
//
// Tensors may have any shape. Their dtype is floating point or complex, and a gradient has the
// shape and dtype of its tensor. Thread-safe unless said otherwise, while no thread writes an
// argument.
//
// O(1), and only lack of memory throws (OutOfMemory, std::bad_alloc), unless a comment says more.
//
// Including this header is what brings the derivatives of all operators into the program.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tenon/autograd/grad_mode.h"
#include "tenon/memory/allocator.h"
#include "tenon/tensor/tensor.h"

namespace tenon::autograd {

class Node;
// A reference to a recorded call.
using NodePtr = IntrusivePtr<Node>;

// --- Backward.

// How a backward runs.
struct BackwardOptions {
  // Keeps what nodes saved, for another backward through the same graph. create_graph implies it.
  bool retain_graph = false;
  // Records the gradients' own computation, so that they can be differentiated.
  bool create_graph = false;
  // What backward allocates comes from here; null: from the thread's current allocator.
  Allocator* allocator = nullptr;
};

// How grad() runs; as BackwardOptions.
struct GradOptions {
  bool retain_graph = false;
  bool create_graph = false;
  // An input that the outputs do not depend on gets an undefined tensor instead of an error.
  bool allow_unused = false;
  Allocator* allocator = nullptr;
};

// Adds to the grad of every leaf that `root` depends on. `gradient` is that of root, of its shape,
// and is cast to its dtype. It may be left out for a real root of one element. Runs on the calling
// thread, with its stream and allocator. Concurrent calls are safe, also where graphs share nodes
// or leaves. Nodes run from the newest to the oldest and then free what they saved. O(nodes and
// edges), no recursion. Throws InvalidArgument if root requires no gradient, a shape does not fit,
// or the graph was used up. It also throws if a saved tensor was changed in place (with the
// operator and both versions).
void backward(const Tensor& root, const Tensor& gradient = {}, BackwardOptions options = {});
void backward(std::span<const Tensor> roots, std::span<const Tensor> gradients = {},
              BackwardOptions options = {});

// The gradients of `inputs` alone; no leaf's grad changes. Nodes that lead to none of them are not
// run. Gradients have their inputs' shapes and dtypes. Throws InvalidArgument as backward does, and
// for an input that is not reached. O(nodes and edges).
std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> grad_outputs = {}, GradOptions options = {});
inline std::vector<Tensor> grad(std::initializer_list<Tensor> outputs,
                                std::initializer_list<Tensor> inputs,
                                std::initializer_list<Tensor> grad_outputs = {},
                                GradOptions options = {}) {
  return grad(std::span(outputs.begin(), outputs.size()), std::span(inputs.begin(), inputs.size()),
              std::span(grad_outputs.begin(), grad_outputs.size()), options);
}

// --- A tensor's place in the graph.

// The node that made it; null for a leaf, and for what needs no gradient.
NodePtr grad_fn(const Tensor& tensor);
// The node that adds to a leaf's grad, made at need; null where no gradient is required. Throws
// InvalidArgument for a tensor that is no leaf.
NodePtr grad_accumulator(const Tensor& leaf);
// Which of its node's outputs it is.
std::uint32_t output_nr(const Tensor& tensor);
// Made by the program rather than by a recorded call.
bool is_leaf(const Tensor& tensor);
// Backward keeps the grad of a tensor that is no leaf, too. Throws InvalidArgument where the tensor
// requires no gradient.
void retain_grad(const Tensor& tensor);
bool retains_grad(const Tensor& tensor);
// Sets the grad; undefined takes it away. Throws InvalidArgument for another shape, dtype, device.
void set_grad(const Tensor& tensor, const Tensor& gradient);
inline void clear_grad(const Tensor& tensor) { set_grad(tensor, {}); }
// For a tensor without gradient: its views become differentiable when values that need a gradient
// are written through them (`copy_(buffer.select(0, i), x)`). Call it before the views are made.
void watch_views(const Tensor& base);

// --- Hooks. They run on the thread of backward; what they throw ends it.

// Stands for a hook. Registering is O(1); meanwhile no backward may pass the node.
class HookHandle {
 public:
  HookHandle() = default;
  explicit HookHandle(std::function<void()> remove) : remove_(std::move(remove)) {}
  // Takes the hook away. Harmless the second time. Letting the handle go leaves the hook.
  void remove() {
    if (remove_) std::exchange(remove_, nullptr)();
  }

 private:
  std::function<void()> remove_;
};

// Gets the whole gradient of the tensor; what it returns, if defined, takes its place.
using TensorHook = std::function<Tensor(const Tensor& gradient)>;
HookHandle register_hook(const Tensor& tensor, TensorHook hook);
// After a leaf's grad was added to. Both throw InvalidArgument where no gradient is required.
using AccumulateHook = std::function<void(const Tensor& leaf)>;
HookHandle register_post_accumulate_hook(const Tensor& leaf, AccumulateHook hook);
// Before a node runs: may change its outputs' gradients. A null node throws InvalidArgument.
using NodePreHook = std::function<void(std::span<Tensor> grad_outputs)>;
HookHandle register_pre_hook(const NodePtr& node, NodePreHook hook);
// After it ran: may change the gradients of its inputs.
using NodePostHook =
    std::function<void(std::span<Tensor> grad_inputs, std::span<const Tensor> grad_outputs)>;
HookHandle register_post_hook(const NodePtr& node, NodePostHook hook);
// A node's operator, and where gradients go (null: not needed), which is O(edges). A null node
// throws InvalidArgument.
const char* node_name(const NodePtr& node);
std::vector<NodePtr> next_nodes(const NodePtr& node);

// --- Memory.

// Runs f without keeping what its nodes save. Backward runs f again when it needs that. `inputs`
// and what f captures may require gradients. f must do the same the second time; the default
// generator's state is restored for it. Nests. Works with grad() and create_graph. Throws what f
// throws, and backward throws InvalidArgument where f saved other tensors the second time. f runs
// twice.
Tensor checkpoint(const std::function<Tensor(std::span<const Tensor>)>& f,
                  std::span<const Tensor> inputs);
std::vector<Tensor> checkpoint(const std::function<std::vector<Tensor>(std::span<const Tensor>)>& f,
                               std::span<const Tensor> inputs);

// While the guard lives, `pack` replaces each tensor that a node saves on this thread. `unpack`
// makes a tensor of the same values from what `pack` returned. Leaves are not packed: they stay
// anyway. Guards nest; the innermost counts. Unpacking may happen on any thread, any number of
// times. What `pack` throws ends the recorded call, what `unpack` throws ends backward.
class SavedTensorHooks {
 public:
  // What a hook keeps in a tensor's place, and the two hooks.
  using Packed = std::shared_ptr<void>;
  using Pack = std::function<Packed(const Tensor&)>;
  using Unpack = std::function<Tensor(const Packed&)>;
  SavedTensorHooks(Pack pack, Unpack unpack);
  ~SavedTensorHooks();
  SavedTensorHooks(const SavedTensorHooks&) = delete;
  SavedTensorHooks& operator=(const SavedTensorHooks&) = delete;
};

// Moves what nodes save into memory of `target`, and back when backward needs it. `target` is of
// the tensor's kind of device, such as a pool over mapped files or slower memory. Tensors below
// `min_bytes` stay. `target` must outlive the graph. Throws what `target` throws. O(bytes moved).
class OffloadSaved {
 public:
  explicit OffloadSaved(Allocator& target, std::size_t min_bytes = 0);

 private:
  SavedTensorHooks hooks_;
};

// Nodes do not keep results of 4096 elements and more that are cheap to compute again: those of
// element-wise operators, norms and cat. Backward computes them again, the same bits, from what
// their calls saved. While RecomputeCheap(false) lives on this thread, nodes keep them, for the
// fastest backward. Results that were changed in place since are kept as always. Note [Results made
// again] in saved_tensor.h.
class RecomputeCheap {
 public:
  explicit RecomputeCheap(bool on = true);
  ~RecomputeCheap();
  RecomputeCheap(const RecomputeCheap&) = delete;
  RecomputeCheap& operator=(const RecomputeCheap&) = delete;

 private:
  const bool previous_;
};

// f(inputs) with everything it saves offloaded to `target`, as OffloadSaved does.
Tensor offload(const std::function<Tensor(std::span<const Tensor>)>& f,
               std::span<const Tensor> inputs, Allocator& target);

// --- Finding mistakes.

// While it lives on this thread, recorded calls keep the place of the call, and backward checks
// every gradient. The first NaN throws InvalidArgument with the operator and the place of its
// forward call. With check_forward the results of recorded calls are checked, too, so the first
// operator that makes a NaN is named at once. Slow: O(elements of what is checked), and a stack for
// each call.
class AnomalyMode {
 public:
  explicit AnomalyMode(bool check_forward = false);
  ~AnomalyMode();
  AnomalyMode(const AnomalyMode&) = delete;
  AnomalyMode& operator=(const AnomalyMode&) = delete;

 private:
  const int previous_;
};
namespace detail {
inline constinit thread_local int anomaly_mode = 0;  // 1: gradients, 2: results, too
}
// Whether an AnomalyMode lives on this thread.
inline bool anomaly_enabled() { return detail::anomaly_mode != 0; }

namespace detail {
// Sets the kernels of all derivatives and the factory of gradient metadata. Idempotent.
bool install();
inline const bool installed = install();
}  // namespace detail
}  // namespace tenon::autograd

#include "tenon/autograd/node.h"  // NodePtr needs it whole
