#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/derivatives/install.h"

namespace tenon::autograd {
namespace {

using namespace ops;

// cat and stack: an edge for each tensor.
template <auto& op, bool kStack>
class JoinNode final : public VariadicNode {
 public:
  const char* name() const override { return kStack ? "stack" : "cat"; }
  void backward(const BackwardCall& call) override {
    const Tensor& g = call.grad();
    std::int64_t at = 0;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const InputShape& input = inputs_[i];
      // cat skips 1-d tensors without elements among larger ones.
      const bool skipped = !kStack && input.sizes().size() == 1 && input.sizes()[0] == 0;
      const std::int64_t length = kStack    ? 1
                                  : skipped ? 0
                                            : input.sizes()[static_cast<std::size_t>(dim_)];
      if (call.wants(i)) {
        if (kStack)
          call.out[i] = input.match(g.select(dim_, at));
        else if (skipped)
          call.out[i] = zeros(input.sizes(), input.dtype(), g.device());
        else
          call.out[i] = input.match(g.narrow(dim_, at, length));
      }
      at += length;
    }
  }
  void release_saved() override {
    for (std::size_t i = 0; i < inputs_.size(); ++i) values_[i].release();
  }
  int ready_recompute() override {
    int passes = 1;
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      passes = std::min(passes + values_[i].ready_recompute(), kNoRecipe);
    return passes;
  }
  Tensor recompute() const override {
    std::vector<Tensor> all;
    for (std::size_t i = 0; i < inputs_.size(); ++i) all.push_back(values_[i].get(*this));
    return op(all, dim_);
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor& result) override {
    std::vector<Tensor> all;
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      all.push_back(tangents[i].defined()
                        ? tangents[i]
                        : zeros(inputs_[i].sizes(), inputs_[i].dtype(), result.device()));
    return op(all, dim_);
  }

  static Tensor run(std::span<const Tensor> tensors, std::int64_t dim) {
    Needs needs;
    for (const Tensor& t : tensors) {
      const Needs of_one = detail::needs_of(t);
      needs.grads |= of_one.grads;
      needs.tangents |= of_one.tangents;
    }
    if (needs.all() == 0) [[likely]] {
      const ops::KeyGuard below(DispatchKey::kAutograd);
      return op(tensors, dim);
    }
    auto node = make_intrusive<JoinNode>();
    node->make_edges(tensors.size());
    node->inputs_.resize(tensors.size());
    node->values_ = std::make_unique<SavedTensor[]>(tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      node->inputs_[i].save(tensors[i]);
      node->values_[i].note(tensors[i]);
      if (grad_enabled() && needs_grad(tensors[i])) node->edges()[i] = gradient_edge(tensors[i]);
    }
    if (anomaly_enabled()) [[unlikely]]
      detail::note_call(*node);
    Tensor result = [&] {
      const ops::KeyGuard below(DispatchKey::kAutograd);
      return op(tensors, dim);
    }();
    node->dim_ = dim < 0 ? dim + result.dim() : dim;
    if (anomaly_enabled()) [[unlikely]]
      detail::check_result(*node, result);
    if (needs.grads != 0) attach_history(result, node);
    if (needs.tangents != 0) [[unlikely]] {
      std::vector<const Tensor*> inputs;
      for (const Tensor& t : tensors) inputs.push_back(&t);
      propagate_tangents(*node, inputs, result);
    }
    return result;
  }

 private:
  std::vector<InputShape> inputs_;
  std::unique_ptr<SavedTensor[]> values_;
  std::int64_t dim_ = 0;
};

// Operators that only move elements: undone by another of them.
template <typename F>
class MoveNode final : public NodeOf<1> {
 public:
  static constexpr bool kTakesComplex = true;
  const char* name() const override { return F::kName; }
  template <typename... Arguments>
  void save(std::uint32_t, const Tensor& a, const Arguments&... arguments) {
    a_.save(a);
    how_.save(a, arguments...);
  }
  void backward(const BackwardCall& call) override {
    call.out[0] = how_.undo(call.grad(), a_.sizes());
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    return how_.apply(tangents[0]);
  }

 private:
  InputShape a_;
  F how_;
};

struct Flip {
  static constexpr const char* kName = "flip";
  DimVector dims;
  void save(const Tensor&, IntList d) { dims = d.to_vector(); }
  Tensor apply(const Tensor& t) const { return flip(t, dims); }
  Tensor undo(const Tensor& g, IntList) const { return flip(g, dims); }
};

struct Roll {
  static constexpr const char* kName = "roll";
  DimVector shifts, dims;
  void save(const Tensor&, IntList s, IntList d) {
    shifts = s.to_vector();
    dims = d.to_vector();
  }
  Tensor apply(const Tensor& t) const { return roll(t, shifts, dims); }
  Tensor undo(const Tensor& g, IntList) const {
    DimVector back = shifts;
    for (std::int64_t& shift : back) shift = -shift;
    return roll(g, back, dims);
  }
};

struct Repeat {
  static constexpr const char* kName = "repeat";
  DimVector repeats;
  void save(const Tensor&, IntList r) { repeats = r.to_vector(); }
  Tensor apply(const Tensor& t) const { return repeat(t, repeats); }
  Tensor undo(const Tensor& g, IntList sizes) const {
    if (g.numel() == 0) return zeros(sizes, g.dtype(), g.device());
    DimVector split, dims;
    const std::size_t added = repeats.size() - sizes.size();
    for (std::size_t d = 0; d < repeats.size(); ++d) {
      if (repeats[d] != 1) {
        dims.push_back(static_cast<std::int64_t>(split.size()));
        split.push_back(repeats[d]);
      }
      if (d >= added && sizes[d - added] != 1) split.push_back(sizes[d - added]);
    }
    return (dims.empty() ? g : ops::sum(g.reshape(split), dims)).reshape(sizes);
  }
};

struct Pad {
  static constexpr const char* kName = "pad";
  DimVector padding;
  void save(const Tensor&, IntList p, const Scalar&) { padding = p.to_vector(); }
  Tensor apply(const Tensor& t) const { return pad(t, padding); }
  Tensor undo(const Tensor& g, IntList) const {
    DimVector back = padding;
    for (std::int64_t& n : back) n = -n;
    return pad(g, back);
  }
};

template <bool kLower>
struct Triangle {
  static constexpr const char* kName = kLower ? "tril" : "triu";
  std::int64_t diagonal = 0;
  void save(const Tensor&, std::int64_t d) { diagonal = d; }
  Tensor apply(const Tensor& t) const { return kLower ? tril(t, diagonal) : triu(t, diagonal); }
  Tensor undo(const Tensor& g, IntList) const { return apply(g); }
};

}  // namespace

void install_shape() {
  ops::op::cat.set_kernel(DispatchKey::kAutograd, &JoinNode<ops::op::cat, false>::run);
  ops::op::stack.set_kernel(DispatchKey::kAutograd, &JoinNode<ops::op::stack, true>::run);
  set_derivative<ops::op::flip, MoveNode<Flip>>();
  set_derivative<ops::op::roll, MoveNode<Roll>>();
  set_derivative<ops::op::repeat, MoveNode<Repeat>>();
  set_derivative<ops::op::pad, MoveNode<Pad>>();
  set_derivative<ops::op::tril, MoveNode<Triangle<true>>>();
  set_derivative<ops::op::triu, MoveNode<Triangle<false>>>();
}

}  // namespace tenon::autograd
