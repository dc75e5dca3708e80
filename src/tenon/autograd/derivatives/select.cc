#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/derivatives/install.h"

namespace tenon::autograd {
namespace {

using namespace ops;

class WhereNode final : public NodeOf<3> {
 public:
  static constexpr bool kTakesComplex = true;
  const char* name() const override { return "where"; }
  void save(std::uint32_t, const Tensor& condition, const Tensor& a, const Tensor& b) {
    condition_.save(condition);
    a_.save(a);
    b_.save(b);
  }
  void release_saved() override { condition_.release(); }
  void backward(const BackwardCall& call) override {
    const Tensor& g = call.grad();
    const Tensor condition = condition_.get(*this);
    const Tensor zero = zeros({}, g.dtype(), g.device());
    if (call.wants(1)) call.out[1] = a_.match(ops::where(condition, g, zero));
    if (call.wants(2)) call.out[2] = b_.match(ops::where(condition, zero, g));
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor& result) override {
    const Tensor zero = zeros({}, result.dtype(), result.device());
    return ops::where(condition_.get(*this), tangents[1].defined() ? tangents[1] : zero,
                      tangents[2].defined() ? tangents[2] : zero)
        .expand(result.sizes());
  }

 private:
  SavedTensor condition_;
  InputShape a_, b_;
};

class MaskedFillNode final : public NodeOf<2> {
 public:
  static constexpr bool kTakesComplex = true;
  const char* name() const override { return "masked_fill"; }
  void save(std::uint32_t, const Tensor& a, const Tensor& mask, const Scalar&) {
    mask_.save(mask);
    a_.save(a);
  }
  void release_saved() override { mask_.release(); }
  void backward(const BackwardCall& call) override {
    call.out[0] = a_.match(masked_fill(call.grad(), mask_.get(*this), 0));
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    return masked_fill(tangents[0], mask_.get(*this), 0);
  }

 private:
  SavedTensor mask_;
  InputShape a_;
};

// Elements along a dimension that an index names; Take and Put are each other's transposes.
template <typename F>
class TakeNode final : public NodeOf<2> {
 public:
  static constexpr bool kTakesComplex = true;
  const char* name() const override { return F::kName; }
  void save(std::uint32_t, const Tensor& a, std::int64_t dim, const Tensor& index) {
    index_.save(index);
    a_.save(a);
    dim_ = dim;
  }
  void release_saved() override { index_.release(); }
  void backward(const BackwardCall& call) override {
    const Tensor& g = call.grad();
    // One element, since the operator copies what it adds to.
    const Tensor nothing = zeros({}, g.dtype(), g.device()).expand(a_.sizes());
    call.out[0] = F::put(nothing, dim_, index_.get(*this), g);
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    return F::take(tangents[0], dim_, index_.get(*this));
  }

 private:
  SavedTensor index_;
  InputShape a_;
  std::int64_t dim_ = 0;
};

// a with what the source adds to it at the places that an index names.
template <typename F>
class PutNode final : public NodeOf<3> {
 public:
  static constexpr bool kTakesComplex = true;
  const char* name() const override { return F::kPutName; }
  void save(std::uint32_t, const Tensor& a, std::int64_t dim, const Tensor& index,
            const Tensor& source) {
    index_.save(index);
    source_.save(source);
    a_.save(a);
    dim_ = dim;
  }
  void release_saved() override { index_.release(); }
  void backward(const BackwardCall& call) override {
    const Tensor& g = call.grad();
    if (call.wants(0)) call.out[0] = a_.match(g);
    if (call.wants(2)) call.out[2] = F::back(g, dim_, index_.get(*this), source_);
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor& result) override {
    const Tensor base = tangents[0].defined()
                            ? tangents[0]
                            : zeros(result.sizes(), result.dtype(), result.device());
    return tangents[2].defined() ? F::put(base, dim_, index_.get(*this), tangents[2]) : base;
  }

 private:
  SavedTensor index_;
  InputShape source_, a_;
  std::int64_t dim_ = 0;
};

struct Slices {
  static constexpr const char* kName = "index_select";
  static constexpr const char* kPutName = "index_add";
  static Tensor take(const Tensor& t, std::int64_t dim, const Tensor& index) {
    return index_select(t, dim, index);
  }
  static Tensor put(const Tensor& t, std::int64_t dim, const Tensor& index, const Tensor& source) {
    return index_add(t, dim, index, source);
  }
  static Tensor back(const Tensor& g, std::int64_t dim, const Tensor& index,
                     const InputShape& source) {
    return source.match(index_select(g, dim, index));
  }
};

struct Elements {
  static constexpr const char* kName = "gather";
  static constexpr const char* kPutName = "scatter_add";
  static Tensor take(const Tensor& t, std::int64_t dim, const Tensor& index) {
    return ops::gather(t, dim, index);
  }
  static Tensor put(const Tensor& t, std::int64_t dim, const Tensor& index, const Tensor& source) {
    return scatter_add(t, dim, index, source);
  }
  // The source may be larger than the index; what lies beyond was not used.
  static Tensor back(const Tensor& g, std::int64_t dim, const Tensor& index,
                     const InputShape& source) {
    const Tensor found = ops::gather(g, dim, index);
    if (found.sizes() == source.sizes()) return source.match(found);
    DimVector padding;
    for (std::size_t d = source.sizes().size(); d-- > 0;) {
      padding.push_back(0);
      padding.push_back(source.sizes()[d] - found.sizes()[d]);
    }
    return source.match(pad(found, padding));
  }
};

class EmbeddingNode final : public NodeOf<2> {
 public:
  const char* name() const override { return "embedding"; }
  void save(std::uint32_t, const Tensor& index, const Tensor& weight) {
    index_.save(index);
    weight_.save(weight);
  }
  void release_saved() override { index_.release(); }
  void backward(const BackwardCall& call) override {
    const Tensor& g = call.grad();
    const Tensor nothing = zeros({}, g.dtype(), g.device()).expand(weight_.sizes());
    const Tensor index = index_.get(*this).reshape({-1});
    call.out[1] = index_add(nothing, 0, index, g.reshape({index.numel(), weight_.sizes()[1]}));
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    return embedding(index_.get(*this), tangents[1]);
  }

 private:
  SavedTensor index_;
  InputShape weight_;
};

}  // namespace

void install_select() {
  set_derivative<ops::op::where, WhereNode>();
  set_derivative<ops::op::masked_fill, MaskedFillNode>();
  set_derivative<ops::op::index_select, TakeNode<Slices>>();
  set_derivative<ops::op::gather, TakeNode<Elements>>();
  set_derivative<ops::op::index_add, PutNode<Slices>>();
  set_derivative<ops::op::scatter_add, PutNode<Elements>>();
  set_derivative<ops::op::embedding, EmbeddingNode>();
}

}  // namespace tenon::autograd
