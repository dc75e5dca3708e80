#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/derivatives/install.h"

namespace tenon::autograd {
namespace {

Tensor transposed(const Tensor& t) { return t.transpose(-1, -2); }

// All leading dimensions as one.
Tensor as_rows(const Tensor& t) { return t.dim() == 2 ? t : t.reshape({-1, t.size(-1)}); }

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
    const Tensor a = a_.get(*this);
    const Tensor b = b_.get(*this);
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
    if (call.wants(1)) call.out[1] = ops::matmul(g, b_.get(*this).t());
    if (call.wants(2)) call.out[2] = ops::matmul(a_.get(*this).t(), g);
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
    if (call.wants(0)) call.out[0] = ops::matmul(g, weight_.get(*this));
    if (!call.wants(1) && !call.wants(2)) return;
    const Tensor rows = g.dim() == 1 ? g.unsqueeze(0) : as_rows(g);
    if (call.wants(1)) {
      const Tensor a = a_.get(*this);
      call.out[1] = ops::matmul(rows.t(), a.dim() == 1 ? a.unsqueeze(0) : as_rows(a));
    }
    if (call.wants(2)) call.out[2] = match(ops::sum(rows, 0), bias_.sizes(), bias_.dtype());
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
