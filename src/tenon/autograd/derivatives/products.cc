
#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/derivatives/install.h"
#include "tenon/autograd/derivatives/weight_gradient.h"

namespace tenon::autograd {
namespace {

Tensor transposed(const Tensor& t) { return t.transpose(-1, -2); }

// All leading dimensions as one.
Tensor as_rows(const Tensor& t) {
  return t.dim() == 1 ? t.unsqueeze(0) : t.dim() == 2 ? t : t.flatten(0, -2);
}

// As matmul takes its operands: vectors lend a dimension, which the result does not have.
struct Matrices {
  Tensor a, b, g;
};
Matrices as_matrices(const Tensor& a, const Tensor& b, const Tensor& g) {
  Matrices m{a.dim() == 1 ? a.unsqueeze(0) : a, b.dim() == 1 ? b.unsqueeze(1) : b, g};
  if (b.dim() == 1) m.g = m.g.unsqueeze(-1);
  if (a.dim() == 1) m.g = m.g.unsqueeze(-2);
  return m;
}

class MatmulNode final : public NodeOf<2> {
 public:
  static constexpr bool kTakesComplex = true;
  const char* name() const override { return "matmul"; }
  void save(std::uint32_t needs, const Tensor& a, const Tensor& b) {
    static_cast<void>(needs);
    a_.save(a);
    b_.save(b);
  }
  void release_saved() override {
    a_.release();
    b_.release();
  }
  void backward(const BackwardCall& call) override {
    const Tensor a = conjugated(a_.get(*this));
    const Tensor b = conjugated(b_.get(*this));
    const Matrices m = as_matrices(a, b, call.grad());
    if (call.wants(0)) {
      const Tensor g = sum_to(ops::matmul(m.g, transposed(m.b)), m.a.sizes());
      call.out[0] = a.dim() == 1 ? g.squeeze(0) : g;
    }
    if (call.wants(1)) {
      // One matrix for a whole batch: its rows are one long matrix.
      const bool folds = m.b.dim() == 2 && m.a.dim() > 2 && m.a.numel() > 0;
      const Tensor g = folds ? ops::matmul(as_rows(m.a).t(), as_rows(m.g))
                             : sum_to(ops::matmul(transposed(m.a), m.g), m.b.sizes());
      call.out[1] = b.dim() == 1 ? g.squeeze(1) : g;
    }
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    Tensor sum;
    if (tangents[0].defined()) sum = ops::matmul(tangents[0], b_.get(*this));
    if (tangents[1].defined()) {
      const Tensor other = ops::matmul(a_.get(*this), tangents[1]);
      sum = sum.defined() ? ops::add(sum, other) : other;
    }
    return sum;
  }

 private:
  SavedTensor a_, b_;
};

class AddmmNode final : public NodeOf<3> {
 public:
  static constexpr bool kTakesComplex = true;
  const char* name() const override { return "addmm"; }
  void save(std::uint32_t needs, const Tensor& bias, const Tensor& a, const Tensor& b) {
    bias_.save(bias);
    if ((needs & 4) != 0) a_.save(a);
    if ((needs & 2) != 0) b_.save(b);
  }
  void release_saved() override {
    a_.release();
    b_.release();
  }
  void backward(const BackwardCall& call) override {
    const Tensor& g = call.grad();
    if (call.wants(0)) call.out[0] = bias_.match(g);
    if (call.wants(1)) call.out[1] = ops::matmul(g, conjugated(b_.get(*this)).t());
    if (call.wants(2)) call.out[2] = ops::matmul(conjugated(a_.get(*this)).t(), g);
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor& result) override {
    Tensor sum;
    const auto add = [&](const Tensor& t) { sum = sum.defined() ? ops::add(sum, t) : t; };
    if (tangents[0].defined()) add(to(tangents[0].expand(result.sizes()), result.dtype()));
    if (tangents[1].defined()) add(ops::matmul(tangents[1], b_.get(*this)));
    if (tangents[2].defined()) add(ops::matmul(a_.get(*this), tangents[2]));
    return sum;
  }

 private:
  InputShape bias_;
  SavedTensor a_, b_;
};

class LinearNode final : public NodeOf<3> {
 public:
  const char* name() const override { return "linear"; }
  void save(std::uint32_t needs, const Tensor& a, const Tensor& weight, const Tensor& bias) {
    if ((needs & 2) != 0) a_.save(a);
    if ((needs & 1) != 0) weight_.save(weight);
    if (bias.defined()) bias_.save(bias);
  }
  void release_saved() override {
    a_.release();
    weight_.release();
  }
  void backward(const BackwardCall& call) override {
    const Tensor& g = call.grad();
    GradientTaker* const taker = formulas_recorded() ? nullptr : call.taker(*this, 1);
    const bool is_late = taker != nullptr && !taker->keeps_leaf_until_finish();
    // The weight first, unless that changes it: the input can go before its gradient comes.
    bool is_taken = call.wants(1) && !is_late && weight_backward(call, taker);
    if (call.is_last() && !is_late) a_.release_early(*this);
    if (call.wants(0)) call.out[0] = ops::matmul(g, weight_.get(*this));
    if (is_late) is_taken = weight_backward(call, taker);
    if (is_taken) taker->finish();
    if (call.wants(2)) call.out[2] = match(ops::sum(rows_of(g), 0), bias_.sizes(), bias_.dtype());
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor& result) override {
    Tensor sum;
    const auto add = [&](const Tensor& t) { sum = sum.defined() ? ops::add(sum, t) : t; };
    if (tangents[0].defined()) add(ops::linear(tangents[0], weight_.get(*this)));
    if (tangents[1].defined()) add(ops::linear(a_.get(*this), tangents[1]));
    if (tangents[2].defined()) add(tangents[2].reshape({-1}).expand(result.sizes()));
    return sum;
  }

 private:
  static Tensor rows_of(const Tensor& t) { return t.dim() == 1 ? t.unsqueeze(0) : as_rows(t); }

  // Whether the taker, if any, got the gradient: without its finish().
  bool weight_backward(const BackwardCall& call, GradientTaker* taker) {
    const Tensor g = rows_of(call.grad()), a = rows_of(a_.get(*this));
    if (formulas_recorded() || !has_weight_gradient(g, a)) {
      call.out[1] = ops::matmul(g.t(), a);
      return false;
    }
    if (taker == nullptr) {
      call.out[1] = weight_gradient(g, a);
      return false;
    }
    taker->begin();
    weight_gradient(g, a, *taker);
    return true;
  }

  SavedTensor a_, weight_;
  InputShape bias_;
};

}  // namespace

// bmm and outer are made of matmul and mul, and need nothing of their own.
void install_products() {
  set_derivative<ops::op::matmul, MatmulNode>();
  set_derivative<ops::op::addmm, AddmmNode>();
  set_derivative<ops::op::linear, LinearNode>();
}

}  // namespace tenon::autograd
