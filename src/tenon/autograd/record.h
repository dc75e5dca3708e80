// How a call becomes a node.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "tenon/autograd/forward_mode.h"
#include "tenon/autograd/meta.h"
#include "tenon/autograd/saved_tensor.h"
#include "tenon/ops/dispatch.h"

namespace tenon::autograd {

// Note [Recording]
//
// Each operator's kAutograd kernel is a Kernel<operator, node class>. Where no tensor argument
// needs anything it calls the operator again below kAutograd: a few nanoseconds. Else it
//   1. makes the node with an edge for each tensor argument that needs a gradient,
//   2. lets the node save what it needs: save(needs, arguments...), bit i of `needs` for the i-th
//      tensor argument (of those that need a gradient or have a tangent),
//   3. calls the operator below kAutograd, so that what it is made of records nothing,
//   4. save_result(result), where the node class has that,
//   5. makes the node the result's history, and computes the result's tangents.
// An operator that writes into its first argument has an IntoKernel with the same node class: the
// change is checked before it happens, and the written tensor's history becomes the node.

// Formulas must be made of recorded operators rather than of whatever is fastest.
inline bool formulas_recorded() { return grad_enabled() || forward_depth() != 0; }

// --- Bits for tensor arguments, in their order.
struct Needs {
  std::uint32_t grads = 0;     // require a gradient, and it is recorded
  std::uint32_t tangents = 0;  // have a tangent at an active level
  std::uint32_t all() const { return grads | tangents; }
};

namespace detail {

template <typename F>
inline void visit_argument(F& f, const Tensor& t, std::uint32_t& i) {
  f(t, i++);
}
template <typename F, typename T>
inline void visit_argument(F&, const T&, std::uint32_t&) {}
template <typename F, typename... Arguments>
inline void for_each_tensor(F&& f, const Arguments&... arguments) {
  std::uint32_t i = 0;
  (visit_argument(f, arguments, i), ...);
}

template <typename... Arguments>
inline Needs needs_of(const Arguments&... arguments) {
  Needs needs;
  if (grad_enabled()) [[likely]]
    for_each_tensor(
        [&](const Tensor& t, std::uint32_t i) {
          if (needs_grad(t)) needs.grads |= std::uint32_t{1} << i;
        },
        arguments...);
  if (forward_depth() != 0) [[unlikely]]
    for_each_tensor(
        [&](const Tensor& t, std::uint32_t i) {
          if (has_tangent(t)) needs.tangents |= std::uint32_t{1} << i;
        },
        arguments...);
  return needs;
}

template <typename... Arguments>
inline void connect(Node& node, std::uint32_t grads, const Arguments&... arguments) {
  for_each_tensor(
      [&](const Tensor& t, std::uint32_t i) {
        if ((grads >> i & 1) != 0) node.edges()[i] = gradient_edge(t);
      },
      arguments...);
}

// Remembers the place of the call, and checks the result, as the thread's anomaly mode wants.
void note_call(Node& node);
void check_result(const Node& node, const Tensor& result);

template <typename NodeT>
concept SavesResult = requires(NodeT& node, const Tensor& t) {
  node.save_result(t);
};

// Unless the class says that it keeps none of its inputs: then nothing is copied for an in-place
// change.
template <typename NodeT>
concept SavesInputs = !requires {
  requires !NodeT::kSavesInputs;
};

// Node classes that are right for complex tensors say so: kTakesComplex. Note [Complex gradients]
// in derivatives/formulas.h.
template <typename NodeT>
concept TakesComplex = requires {
  requires NodeT::kTakesComplex;
};
[[noreturn]] void refuse_complex(const char* op);
template <typename NodeT, typename... Arguments>
inline void check_dtypes(const char* op, const Arguments&... arguments) {
  if constexpr (!TakesComplex<NodeT>)
    for_each_tensor(
        [&](const Tensor& t, std::uint32_t) {
          if (t.defined() && is_complex(t.dtype())) [[unlikely]]
            refuse_complex(op);
        },
        arguments...);
}

template <typename NodeT, typename... Arguments>
void add_tangents(NodeT& node, Tensor& result, const Arguments&... arguments) {
  std::array<const Tensor*, sizeof...(Arguments)> inputs{};
  std::size_t count = 0;
  for_each_tensor([&](const Tensor& t, std::uint32_t) { inputs[count++] = &t; }, arguments...);
  propagate_tangents(node, std::span(inputs.data(), count), result);
  if constexpr (SavesResult<NodeT>) node.save_result(result);  // with its tangents
}

// Where one has labels: backward finds their symbols by the node's shapes.
void keep_shapes(Node& node, std::span<const Tensor* const> arguments, const Tensor& result);
template <typename... Arguments>
inline void note_shapes(Node& node, const Tensor& result, const Arguments&... arguments) {
  bool labelled = result.impl()->is_labelled();
  for_each_tensor(
      [&](const Tensor& t, std::uint32_t) {
        labelled |= t.defined() && t.impl()->is_labelled();
      },
      arguments...);
  if (!labelled) [[likely]]
    return;
  std::vector<const Tensor*> all;
  for_each_tensor([&](const Tensor& t, std::uint32_t) { all.push_back(&t); }, arguments...);
  keep_shapes(node, all, result);
}

inline Tensor& differentiable_part(Tensor& result) { return result; }
inline Tensor& differentiable_part(std::pair<Tensor, Tensor>& result) { return result.first; }

}  // namespace detail

// Makes `node` the history of a fresh result, its output of that number.
void attach_history(Tensor& result, NodePtr node, std::uint32_t output_nr = 0);

template <typename NodeT, typename... Arguments>
inline void finish_call(IntrusivePtr<NodeT>& node, const Needs& needs, Tensor& result,
                        const Arguments&... arguments) {
  if constexpr (detail::SavesResult<NodeT>) node->save_result(result);
  detail::note_shapes(*node, result, arguments...);
  if (anomaly_enabled()) [[unlikely]]
    detail::check_result(*node, result);
  if (needs.grads != 0) attach_history(result, node);
  if (needs.tangents != 0) [[unlikely]]
    detail::add_tangents(*node, result, arguments...);
}

// The kAutograd kernel of an operator: Note [Recording].
template <auto& op, typename NodeT>
struct Kernel;
template <typename Result, typename... Arguments, ops::Operator<Result(Arguments...)>& op,
          typename NodeT>
struct Kernel<op, NodeT> {
  static Result run(Arguments... arguments) {
    const Needs needs = detail::needs_of(arguments...);
    if (needs.all() == 0) [[likely]] {
      const ops::KeyGuard below(DispatchKey::kAutograd);
      return op(arguments...);
    }
    detail::check_dtypes<NodeT>(op.name(), arguments...);
    auto node = make_intrusive<NodeT>();
    detail::connect(*node, needs.grads, arguments...);
    node->save(needs.all(), arguments...);
    if (anomaly_enabled()) [[unlikely]]
      detail::note_call(*node);
    Result result = [&] {
      const ops::KeyGuard below(DispatchKey::kAutograd);
      return op(arguments...);
    }();
    finish_call(node, needs, detail::differentiable_part(result), arguments...);
    return result;
  }
};

namespace detail {

// Arguments as the node may save them. What is about to be overwritten is saved as a tensor of its
// own, without its place in the graph, which is about to hold the node; its values are copied only
// if the node did save it.
class Saveable {
 public:
  explicit Saveable(const Tensor& out) : out_(out) {}

  const Tensor& operator()(const Tensor& t) {
    if (!t.is_same(out_)) return t;
    if (!kept_.defined()) {
      kept_ = Tensor(t.impl()->shallow_copy(false, true));
      if (forward_depth() != 0) [[unlikely]]
        copy_tangents(t, kept_);
      if (current_pack_hooks() != nullptr) [[unlikely]]
        copy_values();
    }
    return kept_;
  }
  template <typename T>
  const T& operator()(const T& value) {
    return value;
  }
  // After the node has saved, and before anything is written.
  void finish() {
    if (kept_.defined() && kept_.use_count() > 1) copy_values();
  }

 private:
  void copy_values();

  const Tensor& out_;
  Tensor kept_;
};

// The first argument has the target's shape, and all have its dtype.
template <typename... Arguments>
inline bool are_like(const Tensor& out, const Arguments&... arguments) {
  bool alike = true;
  for_each_tensor(
      [&](const Tensor& t, std::uint32_t i) {
        alike &= t.dtype() == out.dtype() && (i != 0 || t.sizes() == out.sizes());
      },
      arguments...);
  return alike;
}

// The target of an in-place change takes part in what is recorded, or should have.
inline bool is_watched(const Tensor& out) {
  const AutogradMeta* meta = meta_of(out);
  return meta != nullptr && grad_enabled() &&
         (meta->needs_grad() || (meta->made_without_grad_ && needs_grad(meta->base_)));
}

}  // namespace detail

// The same for an operator that writes into its first argument and returns it.
template <auto& op, typename NodeT>
struct IntoKernel;
template <typename... Arguments, ops::Operator<const Tensor&(const Tensor&, Arguments...)>& op,
          typename NodeT>
struct IntoKernel<op, NodeT> {
  static const Tensor& run(const Tensor& out, Arguments... arguments) {
    const Needs needs = detail::needs_of(arguments...);
    const Needs of_out = detail::needs_of(out);
    // Of other dtypes nothing has a gradient.
    const bool may_have_gradient = is_floating(out.dtype()) || is_complex(out.dtype());
    if (!may_have_gradient || ((needs.all() | of_out.all()) == 0 && !detail::is_watched(out)))
        [[likely]] {
      const ops::KeyGuard below(DispatchKey::kAutograd);
      return op(out, arguments...);
    }
    detail::check_dtypes<NodeT>(op.name(), out, arguments...);
    if (needs.grads != 0 || detail::is_watched(out))
      check_in_place(op.name(), out);
    else if (needs.tangents != 0)
      check_views_are_watched(op.name(), out);
    auto node = make_intrusive<NodeT>();
    detail::connect(*node, needs.grads, arguments...);
    if (!detail::are_like(out, arguments...)) node->refuse_recompute();
    if constexpr (detail::SavesInputs<NodeT>) {
      detail::Saveable saveable(out);
      node->save(needs.all(), saveable(arguments)...);
      saveable.finish();
    } else {
      node->save(needs.all(), arguments...);
    }
    if (anomaly_enabled()) [[unlikely]]
      detail::note_call(*node);
    const TangentInputs tangents(needs.tangents | of_out.tangents, arguments...);
    {
      const ops::KeyGuard below(DispatchKey::kAutograd);
      op(out, arguments...);
    }
    if constexpr (detail::SavesResult<NodeT>) node->save_result(out);
    detail::note_shapes(*node, out, arguments...);
    if (anomaly_enabled()) [[unlikely]]
      detail::check_result(*node, out);
    if ((needs.grads | of_out.grads) != 0) rebase_history(out, node);
    if (!tangents.empty()) [[unlikely]]
      tangents.propagate_in_place(*node, out);
    return out;
  }
};

template <auto& op, typename NodeT>
void set_derivative() {
  op.set_kernel(DispatchKey::kAutograd, &Kernel<op, NodeT>::run);
}
template <auto& op, typename NodeT>
void set_into_derivative() {
  op.set_kernel(DispatchKey::kAutograd, &IntoKernel<op, NodeT>::run);
}

}  // namespace tenon::autograd
