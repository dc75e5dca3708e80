// Arithmetic of 16-bit floats is that of f32, rounded once.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ops/reference.h"
#include "tenon/ops/operators.h"

namespace tenon {
namespace {

using testing::values;

void expect_same(const Tensor& got, const Tensor& wanted, const std::string& what) {
  const std::vector<double> a = values(got), b = values(wanted);
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    ASSERT_EQ(a[i], b[i]) << what << ' ' << i;
    ASSERT_EQ(std::signbit(a[i]), std::signbit(b[i])) << what << ' ' << i;
  }
}

// Numbers of the dtype, with the special ones at both ends.
Tensor numbers(std::int64_t count, DType dtype) {
  const Tensor ends = tensor<double>({0, -0.0, NAN, INFINITY, -INFINITY, 6e-8, -6e-5, 65504});
  const Tensor usual = to(ops::mul(randn({count}), 9), DType::kF64);
  const Tensor all = to(ops::cat({ends, usual, ends}), dtype);
  return all.narrow(0, count % 9, count);
}

// Lengths below, at and beyond a chunk of vectors.
template <typename Check>
void for_each_length(const Check& check) {
  for (const DType dtype : {DType::kF16, DType::kBF16})
    for (const std::int64_t length : {1, 7, 15, 16, 17, 31, 32, 33, 47, 64, 65, 100})
      check(dtype, length);
}

TEST(HalfBlocksTest, PairsAndSingleElementsGiveWhatF32Gives) {
  struct Case {
    const char* name;
    Tensor (*run)(const Tensor&, const Tensor&);
    const Tensor& (*in_place)(const Tensor&, const Tensor&);
  };
  const Case cases[] = {{"add", ops::add, ops::add_},
                        {"sub", ops::sub, ops::sub_},
                        {"mul", ops::mul, ops::mul_},
                        {"div", ops::div, ops::div_},
                        {"maximum", ops::maximum, ops::maximum_},
                        {"minimum", ops::minimum, ops::minimum_}};
  for_each_length([&](DType dtype, std::int64_t length) {
    const Tensor a = numbers(length, dtype), b = ops::flip(numbers(length, dtype), {0});
    const Tensor wide_a = to(a, DType::kF32), wide_b = to(b, DType::kF32);
    const Tensor one = b.narrow(0, 0, 1), wide_one = wide_b.narrow(0, 0, 1);
    for (const Case& c : cases) {
      const std::string what = fmt::format("{} {} {}", c.name, dtype_name(dtype), length);
      expect_same(c.run(a, b), to(c.run(wide_a, wide_b), dtype), what);
      expect_same(c.run(a, one), to(c.run(wide_a, wide_one), dtype), what + " second");
      expect_same(c.run(one, b), to(c.run(wide_one, wide_b), dtype), what + " first");
      const Tensor target = clone(a);
      expect_same(c.in_place(target, b), to(c.run(wide_a, wide_b), dtype), what + " in place");
    }
  });
}

TEST(HalfBlocksTest, FunctionsOfOneNumberGiveWhatF32Gives) {
  struct Case {
    const char* name;
    Tensor (*run)(const Tensor&);
  };
  const Case cases[] = {{"square", ops::square},
                        {"relu", ops::relu},
                        {"floor", ops::floor},
                        {"round", ops::round},
                        {"sqrt", ops::sqrt},
                        {"reciprocal", ops::reciprocal},
                        {"hardswish", ops::hardswish},
                        {"leaky_relu", [](const Tensor& x) { return ops::leaky_relu(x); }},
                        {"clamp", [](const Tensor& x) { return ops::clamp(x, -1, 2); }},
                        {"pow", [](const Tensor& x) { return ops::pow(x, 3); }}};
  for_each_length([&](DType dtype, std::int64_t length) {
    const Tensor a = numbers(length, dtype);
    for (const Case& c : cases)
      expect_same(c.run(a), to(c.run(to(a, DType::kF32)), dtype),
                  fmt::format("{} {} {}", c.name, dtype_name(dtype), length));
  });
}

}  // namespace
}  // namespace tenon
