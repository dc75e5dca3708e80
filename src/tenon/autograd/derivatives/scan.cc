#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/autograd/derivatives/install.h"

namespace tenon::autograd {
namespace {

using namespace ops;

Tensor sum_from_the_end(const Tensor& t, std::int64_t dim) {
  return t.dim() == 0 ? t : flip(cumsum(flip(t, {dim}), dim), {dim});
}

class CumsumNode final : public NodeOf<1> {
 public:
  const char* name() const override { return "cumsum"; }
  void save(std::uint32_t, const Tensor&, std::int64_t dim) { dim_ = dim; }
  void backward(const BackwardCall& call) override {
    call.out[0] = sum_from_the_end(call.grad(), dim_);
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    return cumsum(tangents[0], dim_);
  }

 private:
  std::int64_t dim_ = 0;
};

class CumprodNode final : public NodeOf<1> {
 public:
  const char* name() const override { return "cumprod"; }
  void save(std::uint32_t, const Tensor& a, std::int64_t dim) {
    a_.save(a);
    dim_ = dim;
  }
  void save_result(const Tensor& result) { result_.save_result(result); }
  void release_saved() override {
    a_.release();
    result_.release();
  }
  void backward(const BackwardCall& call) override {
    const Tensor a = a_.get(*this);
    const Tensor& g = call.grad();
    if (a.dim() == 0 || a.numel() == 0) {
      call.out[0] = g;
      return;
    }
    const bool divides = !formulas_recorded() && !a.is_meta() && !ops::any(eq(a, 0)).item<bool>();
    if (divides) {
      call.out[0] = div(sum_from_the_end(mul(g, result_.get(*this)), dim_), a);
      return;
    }
    // Where elements are zero, or the derivative is to be differentiated: one product at a time.
    const Tensor inputs[] = {a};
    call.out[0] = differentiate(
        [dim = dim_](std::span<const Tensor> in) {
          std::vector<Tensor> products;
          for (const Tensor& row : in[0].unbind(dim))
            products.push_back(products.empty() ? row : mul(products.back(), row));
          return stack(products, dim);
        },
        inputs, g, 1)[0];
  }

 private:
  SavedTensor a_, result_;
  std::int64_t dim_ = 0;
};

// sort and topk: the values' gradients go back to where the values came from.
class OrderNode final : public NodeOf<1> {
 public:
  explicit OrderNode(const char* name) : name_(name) {}
  const char* name() const override { return name_; }
  void save(const Tensor& a, std::int64_t dim, const Tensor& indices) {
    a_.save(a);
    dim_ = dim;
    indices_.save(indices);
  }
  void release_saved() override { indices_.release(); }
  void backward(const BackwardCall& call) override {
    const Tensor& g = call.grad();
    if (a_.sizes().empty()) {
      call.out[0] = g;
      return;
    }
    // One element, since scatter_add copies what it adds to.
    const Tensor nothing = zeros({}, g.dtype(), g.device()).expand(a_.sizes());
    call.out[0] = scatter_add(nothing, dim_, indices_.get(*this), g);
  }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    return a_.sizes().empty() ? tangents[0] : ops::gather(tangents[0], dim_, indices_.get(*this));
  }

 private:
  const char* const name_;
  InputShape a_;
  SavedTensor indices_;
  std::int64_t dim_ = 0;
};

template <typename Call>
SortResult record_order(const char* name, const Tensor& a, std::int64_t dim, Call&& call) {
  SortResult result = [&] {
    const ops::KeyGuard below(DispatchKey::kAutograd);
    return call();
  }();
  const Needs needs = detail::needs_of(a);
  if (needs.all() == 0) [[likely]]
    return result;
  auto node = make_intrusive<OrderNode>(name);
  detail::connect(*node, needs.grads, a);
  node->save(a, dim, result.second);
  if (anomaly_enabled()) [[unlikely]]
    detail::note_call(*node);
  finish_call(node, needs, result.first, a);
  return result;
}

SortResult record_sort(const Tensor& a, std::int64_t dim, bool descending) {
  return record_order("sort", a, dim, [&] { return op::sort(a, dim, descending); });
}

SortResult record_topk(const Tensor& a, std::int64_t k, std::int64_t dim, bool largest) {
  return record_order("topk", a, dim, [&] { return op::topk(a, k, dim, largest); });
}

}  // namespace

void install_scan() {
  set_derivative<ops::op::cumsum, CumsumNode>();
  set_derivative<ops::op::cumprod, CumprodNode>();
  ops::op::sort.set_kernel(DispatchKey::kAutograd, &record_sort);
  ops::op::topk.set_kernel(DispatchKey::kAutograd, &record_topk);
}

}  // namespace tenon::autograd
