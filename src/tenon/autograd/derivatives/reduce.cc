#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/derivatives/install.h"

namespace tenon::autograd {
namespace {

using namespace ops;

// What was reduced, and how to spread a result over it again.
class Reduced {
 public:
  void save(const char* what, const Tensor& a, IntList dims, bool keepdim) {
    shape_.save(a);
    bits_ = ops::detail::reduced_dims(what, a, dims);
    keepdim_ = keepdim;
    count_ = 1;
    for (std::size_t d = 0; d < a.sizes().size(); ++d)
      if ((bits_ >> d & 1) != 0) count_ *= a.sizes()[d];
  }
  // With the reduced dimensions as 1.
  Tensor kept(const Tensor& t) const {
    if (keepdim_ || bits_ == 0) return t;
    DimVector sizes = shape_.sizes().to_vector();
    for (std::size_t d = 0; d < sizes.size(); ++d)
      if ((bits_ >> d & 1) != 0) sizes[d] = 1;
    return t.reshape(sizes);
  }
  Tensor spread(const Tensor& t) const { return kept(t).expand(shape_.sizes()); }
  Tensor in_dtype(const Tensor& t) const { return to(t, shape_.dtype()); }
  std::int64_t count() const { return count_; }
  DimVector dims() const {
    DimVector dims;
    for (std::size_t d = 0; d < shape_.sizes().size(); ++d)
      if ((bits_ >> d & 1) != 0) dims.push_back(static_cast<std::int64_t>(d));
    return dims;
  }
  bool keepdim() const { return keepdim_; }
  // Sums as the operator reduces. No dimensions to reduce: nothing happens.
  Tensor summed(const Tensor& t) const { return bits_ == 0 ? t : ops::sum(t, dims(), keepdim_); }

 private:
  InputShape shape_;
  std::uint64_t bits_ = 0;
  std::int64_t count_ = 1;
  bool keepdim_ = false;
};

class SumNode final : public NodeOf<1> {
 public:
  static constexpr bool kTakesComplex = true;
  const char* name() const override { return "sum"; }
  void save(std::uint32_t, const Tensor& a, IntList dims, bool keepdim) {
    reduced_.save("sum", a, dims, keepdim);
  }
  void backward(const BackwardCall& call) override {
    call.out[0] = reduced_.in_dtype(reduced_.spread(call.grad()));
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    return reduced_.summed(tangents[0]);
  }

 private:
  Reduced reduced_;
};

class MeanNode final : public NodeOf<1> {
 public:
  static constexpr bool kTakesComplex = true;
  const char* name() const override { return "mean"; }
  void save(std::uint32_t, const Tensor& a, IntList dims, bool keepdim) {
    reduced_.save("mean", a, dims, keepdim);
  }
  void backward(const BackwardCall& call) override {
    call.out[0] = reduced_.in_dtype(reduced_.spread(ops::mul(call.grad(), 1.0 / count())));
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    return ops::mul(reduced_.summed(tangents[0]), 1.0 / count());
  }

 private:
  double count() const { return static_cast<double>(reduced_.count()); }
  Reduced reduced_;
};

// A derivative by the input and the result.
template <typename F>
class ReduceNode final : public NodeOf<1> {
 public:
  const char* name() const override { return F::kName; }
  void save(std::uint32_t, const Tensor& a, IntList dims, bool keepdim) {
    reduced_.save(F::kName, a, dims, keepdim);
    a_.save(a);
  }
  void save_result(const Tensor& result) { result_.save_result(result); }
  void release_saved() override {
    a_.release();
    result_.release();
  }
  void backward(const BackwardCall& call) override {
    call.out[0] = F::formula(call.grad(), a_.get(*this), result_.get(*this), reduced_);
  }

 private:
  SavedTensor a_, result_;
  Reduced reduced_;
};

// Shared among equal extremes.
struct Extreme {
  static Tensor formula(const Tensor& g, const Tensor& a, const Tensor& result, const Reduced& r) {
    const Tensor chosen = to(eq(a, r.spread(result)), g.dtype());
    return ops::mul(chosen, r.spread(ops::div(g, r.summed(chosen))));
  }
};
struct Largest : Extreme {
  static constexpr const char* kName = "amax";
};
struct Smallest : Extreme {
  static constexpr const char* kName = "amin";
};

struct LogSumExp {
  static constexpr const char* kName = "logsumexp";
  static Tensor formula(const Tensor& g, const Tensor& a, const Tensor& result, const Reduced& r) {
    return ops::mul(r.spread(g), exp(sub(a, r.spread(result))));
  }
};

// Zero at the origin, where the norm has no slope.
struct Norm {
  static constexpr const char* kName = "norm";
  static Tensor formula(const Tensor& g, const Tensor& a, const Tensor& result, const Reduced& r) {
    const Tensor is_zero = eq(result, 0);
    const Tensor scale = masked_fill(ops::div(g, masked_fill(result, is_zero, 1)), is_zero, 0);
    return ops::mul(a, r.spread(scale));
  }
};

// The product of the others, also where some are zero: products of what comes before and after.
struct Product {
  static constexpr const char* kName = "prod";
  static Tensor formula(const Tensor& g, const Tensor& a, const Tensor& result, const Reduced& r) {
    const bool has_zero = !formulas_recorded() && a.numel() > 0 && !a.is_meta() &&
                          ops::any(eq(result, 0)).item<bool>();
    if (!formulas_recorded() && !has_zero)
      return ops::mul(r.spread(ops::mul(g, result)), reciprocal(a));
    // The reduced dimensions last, as one row.
    DimVector order, inverse(a.sizes().size());
    const DimVector dims = r.dims();
    for (std::int64_t d = 0; d < a.dim(); ++d)
      if (std::find(dims.begin(), dims.end(), d) == dims.end()) order.push_back(d);
    for (const std::int64_t d : dims) order.push_back(d);
    for (std::size_t d = 0; d < order.size(); ++d)
      inverse[static_cast<std::size_t>(order[d])] = static_cast<std::int64_t>(d);
    const Tensor moved = a.permute(order);
    if (a.numel() == 0) return zeros_like(a);
    const Tensor rows = moved.reshape({-1, r.count()});
    const Tensor one = ones({rows.size(0), 1}, rows.dtype(), rows.device());
    const auto before = [&](const Tensor& t) {
      return cumprod(cat({one, t.narrow(1, 0, r.count() - 1)}, 1), 1);
    };
    const Tensor others = ops::mul(before(rows), flip(before(flip(rows, {1})), {1}));
    return ops::mul(r.spread(g), others.reshape(moved.sizes()).permute(inverse));
  }
};

template <bool kRoot>
class VarianceNode final : public NodeOf<1> {
 public:
  const char* name() const override { return kRoot ? "std" : "var"; }
  void save(std::uint32_t, const Tensor& a, IntList dims, std::int64_t correction, bool keepdim) {
    reduced_.save(name(), a, dims, keepdim);
    a_.save(a);
    correction_ = correction;
  }
  void save_result(const Tensor& result) requires kRoot { result_.save_result(result); }
  void release_saved() override {
    a_.release();
    result_.release();
  }
  void backward(const BackwardCall& call) override {
    const Tensor a = a_.get(*this);
    // 0 where the correction leaves nothing, and then no gradient is a number.
    const std::int64_t left = reduced_.count() > correction_ ? reduced_.count() - correction_ : 0;
    const auto divisor = static_cast<double>(left);
    Tensor g = call.grad();
    if constexpr (kRoot) {
      const Tensor result = result_.get(*this);
      const Tensor is_zero = eq(result, 0);
      g = masked_fill(ops::div(g, masked_fill(result, is_zero, 1)), is_zero, 0) * 0.5;
    }
    const Tensor mean = reduced_.dims().empty() ? a : ops::mean(a, reduced_.dims(), true);
    call.out[0] = ops::mul(reduced_.spread(ops::mul(g, 2 / divisor)), sub(a, mean));
  }

 private:
  SavedTensor a_, result_;
  Reduced reduced_;
  std::int64_t correction_ = 0;
};

}  // namespace

void install_reduce() {
  set_derivative<ops::op::sum, SumNode>();
  set_derivative<ops::op::mean, MeanNode>();
  set_derivative<ops::op::prod, ReduceNode<Product>>();
  set_derivative<ops::op::amax, ReduceNode<Largest>>();
  set_derivative<ops::op::amin, ReduceNode<Smallest>>();
  set_derivative<ops::op::logsumexp, ReduceNode<LogSumExp>>();
  set_derivative<ops::op::norm, ReduceNode<Norm>>();
  set_derivative<ops::op::var, VarianceNode<false>>();
  set_derivative<ops::op::std, VarianceNode<true>>();
}

}  // namespace tenon::autograd
