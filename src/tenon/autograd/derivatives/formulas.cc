#include "tenon/autograd/derivatives/formulas.h"

#include "tenon/tensor/strided_loop.h"

namespace tenon::autograd {
namespace {

class LinearCallNode final : public NodeOf<1> {
 public:
  LinearCallNode(const char* name, TensorFunction apply, TensorFunction transpose)
      : name_(name), apply_(std::move(apply)), transpose_(std::move(transpose)) {}
  const char* name() const override { return name_; }
  void backward(const BackwardCall& call) override { call.out[0] = transpose_(call.grad()); }
  Tensor tangent(std::span<const Tensor> tangents, const Tensor&) override {
    return linear_call(name_, tangents[0], apply_, transpose_);
  }

 private:
  const char* const name_;
  const TensorFunction apply_, transpose_;
};

}  // namespace

Tensor linear_call(const char* name, const Tensor& t, const TensorFunction& apply,
                   const TensorFunction& transpose) {
  const Needs needs = recording_suspended() ? Needs() : detail::needs_of(t);
  Tensor result = [&] {
    const ops::KeyGuard below(DispatchKey::kAutograd);
    return apply(t);
  }();
  if (needs.all() == 0) return result;
  auto node = make_intrusive<LinearCallNode>(name, apply, transpose);
  detail::connect(*node, needs.grads, t);
  finish_call(node, needs, result, t);
  return result;
}

Tensor sum_to(const Tensor& gradient, IntList sizes) {
  if (gradient.sizes() == sizes) return gradient;
  const std::size_t added = gradient.sizes().size() - sizes.size();
  DimVector dims;
  for (std::size_t d = 0; d < gradient.sizes().size(); ++d)
    if (d < added || (sizes[d - added] == 1 && gradient.sizes()[d] != 1))
      dims.push_back(static_cast<std::int64_t>(d));
  const Tensor summed = dims.empty() ? gradient : ops::sum(gradient, dims, true);
  return summed.sizes() == sizes ? summed : summed.reshape(sizes);
}

void add_overlapping(const Tensor& places, const Tensor& values) {
  if (places.numel() == 0 || places.is_meta()) return;
  const Tensor dense = contiguous(values);
  visit_dtype(places.dtype(), [&]<typename T>() {
    T* out = places.data_ptr<T>();
    const T* in = dense.const_data_ptr<T>();
    DimVector index(static_cast<std::size_t>(places.dim()), 0);
    for (std::int64_t i = 0; i < dense.numel(); ++i) {
      std::int64_t at = 0;
      for (std::size_t d = 0; d < index.size(); ++d) at += index[d] * places.strides()[d];
      out[at] = static_cast<T>(out[at] + in[i]);
      for (std::size_t d = index.size(); d-- > 0;) {
        if (++index[d] < places.sizes()[d]) break;
        index[d] = 0;
      }
    }
  });
}

std::vector<Tensor> differentiate(const std::function<Tensor(std::span<const Tensor>)>& f,
                                  std::span<const Tensor> inputs, const Tensor& gradient,
                                  std::uint64_t wanted) {
  const bool create_graph = formulas_recorded();
  const bool grads = grad_enabled();
  std::vector<Tensor> arguments(inputs.begin(), inputs.end());
  std::vector<Tensor> sources;
  const RecordAgain record;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if ((wanted >> i & 1) == 0 || !arguments[i].defined()) continue;
    // Something of its own for each input, so that none depends on another.
    if (grads && arguments[i].requires_grad()) {
      arguments[i] = arguments[i].alias();
    } else {
      Tensor own(arguments[i].impl()->shallow_copy(true, true));
      if (forward_depth() != 0) copy_tangents(arguments[i], own);
      arguments[i] = own.set_requires_grad(true);
    }
    sources.push_back(arguments[i]);
  }
  GradOptions options;
  options.create_graph = create_graph;
  options.allow_unused = true;
  const Tensor outputs[] = {f(arguments)};
  const Tensor weights[] = {gradient};
  std::vector<Tensor> found = grad(outputs, sources, weights, options);
  std::vector<Tensor> gradients(inputs.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if ((wanted >> i & 1) != 0 && inputs[i].defined()) gradients[i] = std::move(found[next++]);
  return gradients;
}

}  // namespace tenon::autograd
