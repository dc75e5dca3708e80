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

TEST(FusedTest, CrossEntropyHasTheSlopeOfItsFormula) {
  const DimVector shapes[] = {{6}, {5, 33}, {130, 7}, {3, 4500}, {3, 4, 5}, {2, 21, 9, 7}};
  for (const DimVector& shape : shapes)
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
      for (const double smoothing : {0.0, 0.2})
        for (const auto reduction : {ops::Reduction::kNone, ops::Reduction::kMean}) {
          Generator generator(7);
          const Tensor values = to(randn(shape, DType::kF64, generator), dtype);
          const std::int64_t dim = shape.size() == 1 ? 0 : 1;
          const Tensor target = ops::argmax(values, dim);  // one class is ignored
          const Function f = [&](const Tensor& x) {
            return ops::cross_entropy(x, target, reduction, 2, smoothing);
          };
          const double tolerance =
              dtype == DType::kF64 ? 1e-12 : dtype == DType::kF32 ? 2e-6 : 1e-2;
          const Tensor wide = to(values, DType::kF64);
          expect_near(gradient_of(f, leaf(values), false), gradient_of(f, leaf(wide), true),
                      tolerance, to_string(IntList(shape)).c_str());
          expect_near(to(f(values), DType::kF64), f(wide), tolerance, "the loss");
        }
}

TEST(FusedTest, NllLossHasTheSlopeOfItsFormula) {
  for (const DimVector& shape : {DimVector{6}, {5, 33}, {3, 4, 5}, {2, 21, 9, 7}})
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
      for (const auto reduction :
           {ops::Reduction::kNone, ops::Reduction::kMean, ops::Reduction::kSum}) {
        const Tensor values = to(randn(shape, DType::kF64), dtype);
        const std::int64_t dim = shape.size() == 1 ? 0 : 1;
        const Tensor target = ops::argmax(values, dim);
        const Function f = [&](const Tensor& x) {
          return ops::mul(ops::nll_loss(ops::mul(x, 3), target, reduction, 2), 0.75);
        };
        const std::string what = to_string(IntList(shape)) + dtype_name(dtype).data();
        const double tolerance = dtype == DType::kF64 ? 1e-12 : dtype == DType::kF32 ? 2e-6 : 1e-2;
        const Tensor found = gradient_of(f, leaf(values), false);
        expect_near(found, gradient_of(f, leaf(to(values, DType::kF64)), true), tolerance,
                    what.c_str());
        const double counted = ops::sum(to(ops::ne(target, 2), DType::kF64)).item<double>();
        const double all = reduction == ops::Reduction::kMean ? std::min(counted, 1.0) : counted;
        EXPECT_NEAR(ops::sum(found).item<double>(), -2.25 * all, 1e-2 * counted) << what;
      }
}

// Fails where the loss of f32 rows is computed beside the graph.
TEST(FusedTest, CrossEntropyOfF32IsDifferentiatedTwice) {
  const Tensor x = leaf(tensor<float>({1, 2, 3, 0, 1, 5}).view({2, 3}));
  const Tensor target = tensor<std::int64_t>({0, 2});
  GradOptions options;
  options.create_graph = true;
  const Tensor first = grad({ops::cross_entropy(x, target)}, {x}, {}, options)[0];
  const Tensor second = grad({ops::sum(ops::square(first))}, {x})[0];
  EXPECT_GT(ops::amax(ops::abs(second)).item<double>(), 1e-3);
}

TEST(FusedTest, LossesOfPairsHaveTheSlopesOfTheirFormulas) {
  const auto kinds = {ops::Reduction::kNone, ops::Reduction::kSum, ops::Reduction::kMean};
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16})
    for (const auto reduction : kinds) {
      Generator generator(3);
      const Tensor values = to(randn({7, 33}, DType::kF64, generator), dtype);
      const Tensor row = to(randn({33}, DType::kF64, generator), dtype);
      struct Case {
        const char* name;
        std::function<Tensor(const Tensor&, const Tensor&)> loss;
      };
      const std::vector<Case> all = {
          {"mse", [&](auto& a, auto& b) { return ops::mse_loss(a, b, reduction); }},
          {"l1", [&](auto& a, auto& b) { return ops::l1_loss(a, b, reduction); }},
          {"huber", [&](auto& a, auto& b) { return ops::huber_loss(a, b, reduction, 0.7); }},
      };
      const double tolerance = dtype == DType::kF64 ? 1e-12 : dtype == DType::kF32 ? 2e-6 : 4e-2;
      for (const Case& each : all) {
        const auto of_first = [&](const Tensor& x) { return each.loss(x, to(row, x.dtype())); };
        const auto of_second = [&](const Tensor& x) { return each.loss(to(values, x.dtype()), x); };
        const auto wide = [](const Tensor& t) { return leaf(to(t, DType::kF64)); };
        expect_near(gradient_of(of_first, leaf(values), false),
                    gradient_of(of_first, wide(values), true), tolerance, each.name);
        expect_near(gradient_of(of_second, leaf(row), false),
                    gradient_of(of_second, wide(row), true), tolerance, each.name);
      }
    }
}

TEST(FusedTest, PowersByANumberHaveTheirSlopes) {
  const Tensor x = tensor<double>({-2, 0, 0.5, 3});
  for (const double n : {0.0, 1.0, 2.0, 3.0})
    for (const bool by_formula : {false, true}) {
      const auto f = [n](const Tensor& t) { return ops::pow(t, n); };
      const Tensor found = gradient_of(f, leaf(x), by_formula);
      const Tensor wanted = n == 0 ? zeros({4}, DType::kF64) : ops::mul(ops::pow(x, n - 1), n);
      expect_near(found, wanted, 1e-12, "pow");
    }
  const auto with_tensor = [](const Tensor& t) {
    return ops::pow(t, tensor<double>({0, 2, 0, 1}));
  };
  expect_near(gradient_of(with_tensor, leaf(x), false), tensor<double>({0, 0, 0, 1}), 1e-12, "pow");
}

// All gradients, and that of the input alone.
TEST(FusedTest, NormsHaveTheSlopesOfTheirFormulas) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16})
    for (const std::int64_t width : {1, 5, 16, 33}) {
      Generator generator(5);
      const auto made = [&](IntList sizes) {
        return to(randn(sizes, DType::kF64, generator), dtype);
      };
      const Tensor x = made({6, width}), image = made({3, 4, width}), w = made({width});
      const Tensor b = made({width}), c = made({4}), e = made({4});
      using Norm = std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)>;
      const auto check = [&](const Norm& norm, const Tensor& in, const Tensor& weight,
                             const Tensor& bias, const char* what) {
        const double tolerance = dtype == DType::kF64 ? 1e-9 : dtype == DType::kF32 ? 1e-3 : 0.2;
        const Tensor* all[] = {&in, &weight, &bias};
        for (int i = 0; i < 3; ++i) {
          const auto f = [&, i](const Tensor& t) {
            const auto given = [&](int k) { return k == i ? t : to(*all[k], t.dtype()); };
            return ops::square(norm(given(0), given(1), given(2)));
          };
          expect_near(gradient_of(f, leaf(*all[i]), false),
                      gradient_of(f, leaf(to(*all[i], DType::kF64)), true), tolerance, what);
        }
      };
      const auto layer = [&](auto& a, auto& v, auto& u) {
        return ops::layer_norm(a, {width}, v, u);
      };
      const auto plain = [&](auto& a, auto& v, auto& u) {
        return ops::mul(ops::layer_norm(a, {width}), ops::mul(v, u));
      };
      const auto rms = [&](auto& a, auto& v, auto& u) {
        return ops::add(ops::rms_norm(a, {width}, v, 1e-2), u);
      };
      const auto group = [&](auto& a, auto& v, auto& u) {
        return ops::group_norm(a, 2, v, u, 1e-2);
      };
      if (width > 1) check(layer, x, w, b, "layer_norm");
      if (width > 1) check(plain, x, w, b, "layer_norm without a weight");
      check(rms, x, w, b, "rms_norm");
      check(group, image, c, e, "group_norm");
    }
}

TEST(FusedTest, BatchNormsGradientHasTheSameOrderOnMeta) {
  for (const MemoryFormat format : {MemoryFormat::kContiguous, MemoryFormat::kChannelsLast}) {
    const Tensor image = contiguous(randn({2, 3, 4, 5}), format);
    for (const Tensor& input : {image, image.transpose(2, 3)}) {
      const auto strides_on = [&](Device device) {
        const Tensor x = empty_strided(input.sizes(), input.strides(), DType::kF32, device);
        if (device == Device{}) copy_(x, input);
        x.set_requires_grad(true);
        const Tensor y = ops::batch_norm(x, {}, {}, {}, {}, true);
        return grad({y}, {x}, {empty_like(y)})[0].strides();
      };
      EXPECT_EQ(strides_on(Device{}), strides_on(Device{DeviceType::kMeta}));
    }
  }
}

}  // namespace
}  // namespace tenon::autograd
