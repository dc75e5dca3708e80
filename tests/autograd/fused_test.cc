// Derivatives that are computed in one pass, beside the formulas of operators in f64.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tenon/autograd/autograd.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon::autograd {
namespace {

using Function = std::function<Tensor(const Tensor&)>;

Tensor leaf(const Tensor& t) { return clone(t).set_requires_grad(true); }

Tensor gradient_of(const Function& f, const Tensor& x, bool by_formula) {
  GradOptions options;
  options.create_graph = by_formula;
  const Tensor result = f(x);
  return to(grad({result}, {x}, {ones(result.sizes(), result.dtype())}, options)[0].detach(),
            DType::kF64);
}

// NaN in the same places, and else near each other.
void expect_near(const Tensor& a, const Tensor& b, double tolerance, const char* what) {
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  const Tensor x = contiguous(a), y = contiguous(b);
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const double got = x.const_data_ptr<double>()[i], wanted = y.const_data_ptr<double>()[i];
    if (std::isnan(wanted))
      ASSERT_TRUE(std::isnan(got)) << what << " " << i << ": " << got;
    else
      ASSERT_NEAR(got, wanted, tolerance * std::max(1.0, std::abs(wanted))) << what << " " << i;
  }
}

TEST(FusedTest, ActivationsHaveTheSlopesOfTheirFormulas) {
  const std::vector<std::pair<const char*, Function>> all = {
      {"gelu", [](const Tensor& x) { return ops::gelu(x); }},
      {"gelu_tanh", [](const Tensor& x) { return ops::gelu(x, true); }},
      {"silu", [](const Tensor& x) { return ops::silu(x); }},
      {"mish", [](const Tensor& x) { return ops::mish(x); }},
      {"elu", [](const Tensor& x) { return ops::elu(x, 1.5); }},
      {"softplus", [](const Tensor& x) { return ops::softplus(x, 2, 5); }},
      {"log_sigmoid", [](const Tensor& x) { return ops::log_sigmoid(x); }},
      {"leaky_relu", [](const Tensor& x) { return ops::leaky_relu(x, 0.1); }},
      {"hardswish", [](const Tensor& x) { return ops::hardswish(x); }},
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Tensor far = tensor<double>({-800, -200, -95, -88, -40, -0.0, 0, 40, 88, 95, 200, 800,
                                     std::numeric_limits<double>::quiet_NaN()});
  for (const auto& [name, f] : all)
    for (const std::int64_t count : {1, 15, 16, 17, 31, 257})
      for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
        const Tensor near = linspace(-12, 12, count + 1, DType::kF64).narrow(0, 0, count);
        const Tensor values = to(count == 1 ? far : near, dtype);
        const Tensor wide = to(values, DType::kF64);
        const double tolerance =
            dtype == DType::kF64 ? 1e-12 : dtype == DType::kF32 ? 2e-6 : 1e-2;
        expect_near(gradient_of(f, leaf(values), false), gradient_of(f, leaf(wide), true),
                    tolerance, name);
      }
  const Tensor ends = tensor<float>({static_cast<float>(kInfinity)});
  EXPECT_EQ(gradient_of(all[4].second, leaf(ends), false).item<double>(), 1);
}

}  // namespace
}  // namespace tenon::autograd
