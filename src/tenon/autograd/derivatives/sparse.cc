#include "tenon/ops/sparse.h"

#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/derivatives/install.h"

namespace tenon::autograd {
namespace {

// Two products that are each other's derivatives: P(v, d) = S(v) d of a sparse matrix with values
// v, and Q(x, y), the elements of x yᵀ that the pattern has.
//   P: v gets Q(g, d), d gets S(v)ᵀ g.        Q: x gets S(g) y, y gets S(g)ᵀ x.
template <bool kSampled>
class SparseNode final : public NodeOf<2> {
 public:
  static constexpr bool kTakesComplex = true;
  const char* name() const override { return kSampled ? "sampled_product" : "sparse_product"; }
  void save(std::uint32_t, const ops::SparsePattern& pattern, const Tensor& a, const Tensor& b) {
    pattern_ = pattern;
    a_.save(a);
    b_.save(b);
  }
  void release_saved() override {
    a_.release();
    b_.release();
  }
  void backward(const BackwardCall& call) override {
    const Tensor& g = call.grad();
    const Tensor a = conjugated(a_.get(*this)), b = conjugated(b_.get(*this));
    if (call.wants(0))
      call.out[0] = kSampled ? ops::sparse_product(pattern_, g, b)
                             : ops::sampled_product(pattern_, g, b);
    if (call.wants(1))
      call.out[1] = kSampled ? ops::sparse_product(transposed(pattern_), g, a)
                             : ops::sparse_product(transposed(pattern_), a, g);
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    Tensor sum;
    if (tangents[0].defined()) sum = product(tangents[0], b_.get(*this));
    if (tangents[1].defined()) {
      const Tensor other = product(a_.get(*this), tangents[1]);
      sum = sum.defined() ? ops::add(sum, other) : other;
    }
    return sum;
  }

 private:
  Tensor product(const Tensor& a, const Tensor& b) const {
    return kSampled ? ops::sampled_product(pattern_, a, b) : ops::sparse_product(pattern_, a, b);
  }

  ops::SparsePattern pattern_;
  SavedTensor a_, b_;
};

}  // namespace

void install_sparse() {
  set_derivative<ops::op::sparse_product, SparseNode<false>>();
  set_derivative<ops::op::sampled_product, SparseNode<true>>();
}

}  // namespace tenon::autograd
