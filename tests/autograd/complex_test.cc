// Gradients of complex tensors, by PyTorch's convention: dL/dx + i dL/dy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/refusal.h"
#include "tenon/autograd/autograd.h"
#include "tenon/autograd/gradcheck.h"
#include "tenon/base/error.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/indexing.h"
#include "tenon/tensor/random.h"

namespace tenon::autograd {
namespace {

using ::testing::HasSubstr;
using In = std::span<const Tensor>;
using testing::refusal;

Tensor real_leaf(IntList sizes, std::uint64_t seed) {
  Generator generator(seed);
  const Tensor t = rand(sizes, DType::kF64, generator);
  return ops::add(ops::mul(t, 1.2), 0.4).set_requires_grad(true);
}
// In the first quadrant, away from zero and from the cuts of log and sqrt.
Tensor c_leaf(IntList sizes, std::uint64_t seed) {
  const Tensor t = ops::complex(real_leaf(sizes, seed).detach(),
                                real_leaf(sizes, seed + 100).detach());
  return t.set_requires_grad(true);
}

struct ComplexCase {
  const char* name;
  std::function<Tensor(In)> f;
  std::vector<Tensor> inputs;
  bool second = true;  // false: the second derivative is zero everywhere
};

void check(const std::vector<ComplexCase>& cases) {
  for (const ComplexCase& c : cases) {
    const auto f = [&](In in) { return std::vector<Tensor>{c.f(in)}; };
    EXPECT_EQ(gradcheck(f, c.inputs), "") << c.name;
    if (c.second) {
      EXPECT_EQ(gradgradcheck(f, c.inputs), "") << c.name << ", twice";
    }
  }
}

#define TENON_Z_CASE(name, expression, ...) \
  { name, [](In x) -> Tensor { return expression; }, {__VA_ARGS__} }

TEST(ComplexTest, UnaryFunctions) {
  const Tensor z = c_leaf({2, 2}, 1);
  check({TENON_Z_CASE("neg", ops::square(ops::neg(x[0])), z),
         TENON_Z_CASE("abs", ops::abs(x[0]), z),
         TENON_Z_CASE("square", ops::square(x[0]), z),
         TENON_Z_CASE("exp", ops::exp(x[0]), z),
         TENON_Z_CASE("log", ops::log(x[0]), z),
         TENON_Z_CASE("log10", ops::log10(x[0]), z),
         TENON_Z_CASE("sqrt", ops::sqrt(x[0]), z),
         TENON_Z_CASE("rsqrt", ops::rsqrt(x[0]), z),
         TENON_Z_CASE("reciprocal", ops::reciprocal(x[0]), z),
         TENON_Z_CASE("sin", ops::sin(x[0]), z),
         TENON_Z_CASE("cos", ops::cos(x[0]), z),
         TENON_Z_CASE("tan", ops::tan(x[0]), z),
         TENON_Z_CASE("asin", ops::asin(x[0]), z),
         TENON_Z_CASE("acos", ops::acos(x[0]), z),
         TENON_Z_CASE("atan", ops::atan(x[0]), z),
         TENON_Z_CASE("sinh", ops::sinh(x[0]), z),
         TENON_Z_CASE("cosh", ops::cosh(x[0]), z),
         TENON_Z_CASE("tanh", ops::tanh(x[0]), z)});
}

TEST(ComplexTest, PartsOfNumbers) {
  const Tensor z = c_leaf({3}, 2), w = c_leaf({3}, 3), r = real_leaf({3}, 4), s = real_leaf({3}, 5);
  check({TENON_Z_CASE("conj", ops::mul(ops::conj(x[0]), x[1]), z, w),
         TENON_Z_CASE("real", ops::square(ops::real(x[0])), z),
         TENON_Z_CASE("imag", ops::square(ops::imag(x[0])), z),
         TENON_Z_CASE("complex", ops::square(ops::complex(x[0], x[1])), r, s),
         TENON_Z_CASE("to real", ops::square(to(x[0], DType::kF64)), z),
         TENON_Z_CASE("to complex", ops::square(to(x[0], DType::kC128)), r)});
  EXPECT_TRUE(ops::real(r).is_same(r) && ops::conj(r).is_same(r));
  EXPECT_THAT(refusal([&] { ops::imag(r); }), HasSubstr("imag: a tensor of float64"));
  EXPECT_THAT(refusal([&] { ops::complex(r, to(s, DType::kF32)); }), HasSubstr("float32 [3]"));
}

TEST(ComplexTest, ArithmeticWithRealNumbersToo) {
  const Tensor z = c_leaf({2, 3}, 6), w = c_leaf({3}, 7), r = real_leaf({2, 3}, 8);
  check({TENON_Z_CASE("add", ops::square(x[0] + x[1]), z, w),
         TENON_Z_CASE("sub", ops::square(x[1] - x[0]), z, w),
         TENON_Z_CASE("mul", x[0] * x[1], z, w),
         TENON_Z_CASE("div", x[0] / x[1], z, w),
         TENON_Z_CASE("pow", ops::pow(x[0], x[1]), z, w),
         TENON_Z_CASE("square by pow", ops::pow(x[0], 2), z),
         TENON_Z_CASE("real mul complex", x[1] * x[0], w, r),
         TENON_Z_CASE("real div complex", x[1] / x[0], w, r),
         TENON_Z_CASE("real pow complex", ops::pow(x[1], x[0]), w, r),
         TENON_Z_CASE("complex number", ops::square(x[0] * Complex128(1, 2)), r)});
}

TEST(ComplexTest, ProductsOfMatrices) {
  check({TENON_Z_CASE("matmul", ops::matmul(x[0], x[1]), c_leaf({2, 3}, 9), c_leaf({3, 2}, 10)),
         TENON_Z_CASE("vector", ops::matmul(x[0], x[1]), c_leaf({2, 3}, 11), c_leaf({3}, 12)),
         TENON_Z_CASE("batch", ops::matmul(x[0], x[1]), c_leaf({2, 2, 3}, 13), c_leaf({3, 2}, 14)),
         TENON_Z_CASE("addmm", ops::addmm(x[0], x[1], x[2]), c_leaf({2}, 15), c_leaf({2, 3}, 16),
                    c_leaf({3, 2}, 17))});
}

// Squares in front, so that there is a second derivative.
TEST(ComplexTest, WhatMovesAndAddsElements) {
  const Tensor z = c_leaf({2, 3}, 18), w = c_leaf({2, 3}, 19);
#define TENON_MOVED(name, expression, ...)       \
  {                                              \
    name,                                        \
        [](In x) -> Tensor {                     \
          const Tensor a = ops::square(x[0]);    \
          return expression;                     \
        },                                       \
        {__VA_ARGS__}                            \
  }
  const auto index = [] { return tensor<std::int64_t>({1, 0, 1}); };
  static const Tensor rows = index();
  static const Tensor mask = tensor<bool>({true, false, true});
  check({TENON_MOVED("sum", ops::sum(a, 1), z),
         TENON_MOVED("mean", ops::mean(a), z),
         TENON_MOVED("clone", clone(a), z),
         TENON_MOVED("views", a.t().reshape({6}).slice(0, 1, 5, 2), z),
         TENON_MOVED("expand", a.unsqueeze(0).expand({2, 2, 3}) * 2.0, z),
         TENON_MOVED("split", ops::mul(a.chunk(3, 1)[0], a.unbind(1)[2].unsqueeze(1)), z),
         TENON_MOVED("index", (a[{rows}]), z),
         TENON_MOVED("index_select", ops::index_select(a, 0, rows), z),
         TENON_MOVED("cat", ops::cat({a, x[1]}, 1), z, w),
         TENON_MOVED("stack", ops::stack({a, x[1]}), z, w),
         TENON_MOVED("flip", ops::flip(a, {1}), z),
         TENON_MOVED("pad", ops::pad(a, {1, 1}), z),
         TENON_MOVED("triu", ops::triu(a, 1), z),
         TENON_MOVED("where", ops::where(mask, a, x[1]), z, w),
         TENON_MOVED("masked_fill", ops::masked_fill(a, mask, 0), z)});
}

TEST(ComplexTest, InPlace) {
  check({{"mul_ through a view",
          [](In x) {
            const Tensor a = ops::mul(x[0], 1.0);
            ops::mul_(a.select(0, 1), x[1]);
            ops::add_(a, x[1]);
            return a;
          },
          {c_leaf({2, 2}, 20), c_leaf({2}, 21)}},
         {"copy_",
          [](In x) {
            const Tensor a = ops::mul(x[0], Complex128(0, 1));
            copy_(a.slice(0, 0, 1), x[1]);  // real numbers into complex ones
            return ops::square(a);
          },
          {c_leaf({2}, 22), real_leaf({1}, 23)}}});
}

// The direction in which L = |z|^2 = x^2 + y^2 grows: 2x + 2iy.
TEST(ComplexTest, TheGradientIsTheDirectionOfGrowth) {
  const Tensor z = full({1}, Complex128(3, 4), DType::kC128).set_requires_grad(true);
  backward(ops::sum(ops::square(ops::abs(z))));
  EXPECT_LT(std::abs(z.grad().item<Complex128>() - Complex128(6, 8)), 1e-12);
  clear_grad(z);
  backward(ops::sum(ops::real(ops::mul(z, ops::conj(z)))));
  EXPECT_LT(std::abs(z.grad().item<Complex128>() - Complex128(6, 8)), 1e-12);
  const Tensor zero = zeros({1}, DType::kC64).set_requires_grad(true);
  backward(ops::sum(ops::abs(zero)));
  EXPECT_EQ(zero.grad().item<Complex128>(), Complex128(0, 0));
}

TEST(ComplexTest, WhatHasNoGradientIsRefusedByName) {
  const Tensor z = c_leaf({2, 2}, 24);
  EXPECT_THAT(refusal([&] { ops::cumsum(z, 0); }), HasSubstr("cumsum: it has no gradient"));
  EXPECT_THAT(refusal([&] { ops::prod(z); }), HasSubstr("prod: it has no gradient"));
  EXPECT_THAT(refusal([&] { ops::sign(z); }), HasSubstr("sign: it has no gradient"));
  EXPECT_THAT(refusal([&] { backward(ops::sum(z)); }), HasSubstr("real() or abs()"));
  EXPECT_THAT(refusal([&] { arange(3).set_requires_grad(true); }), HasSubstr("int64"));
  const NoGradGuard unrecorded;
  ops::cumsum(z, 0);
}

}  // namespace
}  // namespace tenon::autograd
