// An operator of one's own, with its derivative: |x|^p, as fast as one loop is, and recorded like
// any other.
#include <fmt/format.h>

#include <cmath>

#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/base/error.h"
#include "tenon/ops/operators.h"

using namespace tenon;

namespace {

// The kernel: checks, makes the result, computes. It serves every device that it can.
Tensor power_kernel(const Tensor& x, double exponent) {
  if (x.dtype() != DType::kF32)
    throw InvalidArgument(
        fmt::format("absolute_power: of {}; it takes float32", dtype_name(x.dtype())));
  const Tensor dense = contiguous(x);
  const Tensor out = empty(x.sizes(), x.dtype(), x.device());
  if (x.is_meta()) return out;
  const float* from = dense.const_data_ptr<float>();
  float* to = out.data_ptr<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i)
    to[i] = std::pow(std::abs(from[i]), static_cast<float>(exponent));
  return out;
}

constinit ops::Operator<Tensor(const Tensor&, double)> absolute_power("absolute_power",
                                                                      &power_kernel);

// The derivative: a node that keeps what it needs. The formula is made of recorded operators, so
// gradients of gradients come by themselves.
class AbsolutePowerNode final : public autograd::NodeOf<1> {
 public:
  const char* name() const override { return "absolute_power"; }
  void save(std::uint32_t, const Tensor& x, double exponent) {
    x_.save(x);
    exponent_ = exponent;
  }
  void release_saved() override { x_.release(); }
  void backward(const autograd::BackwardCall& call) override {
    const Tensor x = x_.get(*this);
    call.out[0] = call.grad() * (absolute_power(x, exponent_ - 1) * ops::sign(x) * exponent_);
  }

 private:
  autograd::SavedTensor x_;
  double exponent_ = 1;
};

}  // namespace

int main() {
  autograd::set_derivative<absolute_power, AbsolutePowerNode>();

  const Tensor x = tensor<float>({-2, 0.5, 3});
  x.set_requires_grad(true);
  const Tensor y = ops::sum(absolute_power(x, 3));  // sum of |x|^3
  const Tensor first = autograd::grad({y}, {x}, {}, {.create_graph = true})[0];
  const Tensor second = autograd::grad({ops::sum(first)}, {x})[0];
  bool right = true;
  for (std::int64_t i = 0; i < 3; ++i) {
    const double v = x.detach()[i].item<double>();
    fmt::print("x {:5.2f}: slope {:6.2f}, curvature {:6.2f}\n", v, first.detach()[i].item<double>(),
               second[i].item<double>());
    right = right && std::abs(first.detach()[i].item<double>() - 3 * v * std::abs(v)) < 1e-4;
    right = right && std::abs(second[i].item<double>() - 6 * std::abs(v)) < 1e-3;
  }
  return right ? 0 : 1;
}
