#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "ops/reference.h"
#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

using testing::element;
using testing::for_each_index;
using testing::Index;
using testing::random_floats;
using testing::values;

struct Case {
  const char* name;
  Tensor (*function)(const Tensor&, IntList, bool);
  double (*reference)(const std::vector<double>&);
};

double sum_of(const std::vector<double>& x) {
  long double sum = 0;
  for (const double v : x) sum += v;
  return static_cast<double>(sum);
}
double variance_of(const std::vector<double>& x) {
  const double mean = sum_of(x) / static_cast<double>(x.size());
  double sum = 0;
  for (const double v : x) sum += (v - mean) * (v - mean);
  return sum / static_cast<double>(x.size() - 1);
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"sum", [](const Tensor& a, IntList d, bool k) { return ops::sum(a, d, k); }, sum_of},
      {"mean", [](const Tensor& a, IntList d, bool k) { return ops::mean(a, d, k); },
       [](const std::vector<double>& x) { return sum_of(x) / static_cast<double>(x.size()); }},
      {"prod", [](const Tensor& a, IntList d, bool k) { return ops::prod(a, d, k); },
       [](const std::vector<double>& x) {
         double product = 1;
         for (const double v : x) product *= v;
         return product;
       }},
      {"amax", [](const Tensor& a, IntList d, bool k) { return ops::amax(a, d, k); },
       [](const std::vector<double>& x) { return *std::max_element(x.begin(), x.end()); }},
      {"amin", [](const Tensor& a, IntList d, bool k) { return ops::amin(a, d, k); },
       [](const std::vector<double>& x) { return *std::min_element(x.begin(), x.end()); }},
      {"logsumexp", [](const Tensor& a, IntList d, bool k) { return ops::logsumexp(a, d, k); },
       [](const std::vector<double>& x) {
         double sum = 0;
         for (const double v : x) sum += std::exp(v);
         return std::log(sum);
       }},
      {"norm", [](const Tensor& a, IntList d, bool k) { return ops::norm(a, d, k); },
       [](const std::vector<double>& x) {
         double sum = 0;
         for (const double v : x) sum += v * v;
         return std::sqrt(sum);
       }},
      {"var", [](const Tensor& a, IntList d, bool k) { return ops::var(a, d, 1, k); }, variance_of},
      {"std", [](const Tensor& a, IntList d, bool k) { return ops::std(a, d, 1, k); },
       [](const std::vector<double>& x) { return std::sqrt(variance_of(x)); }},
  };
  return all;
}

TEST(ReduceTest, EveryGeometryAgreesWithPlainLoops) {
  Random random(31);
  for (int round = 0; round < 250; ++round) {
    SCOPED_TRACE(round);
    DimVector sizes, dims;
    const std::uint64_t ndim = random.below(6);
    for (std::uint64_t d = 0; d < ndim; ++d) {
      sizes.push_back(static_cast<std::int64_t>(random.chance(0.1) ? 40 : random.between(2, 4)));
      if (random.chance(0.5)) dims.push_back(static_cast<std::int64_t>(d));
    }
    const DType dtype = random.chance(0.5) ? DType::kF32 : DType::kF64;
    const Tensor a = random_floats(random, sizes, dtype);
    const bool keepdim = random.chance(0.5);
    std::map<Index, std::vector<double>> groups;
    for_each_index(sizes, [&](const Index& index) {
      Index kept;
      for (std::size_t d = 0; d < index.size(); ++d)
        if (!dims.empty() &&
            std::find(dims.begin(), dims.end(), static_cast<std::int64_t>(d)) == dims.end())
          kept.push_back(index[d]);
      groups[kept].push_back(element(a, index));
    });
    for (const Case& c : cases()) {
      const std::string name = c.name;
      if ((name == "var" || name == "std") && groups.begin()->second.size() < 2) continue;
      const Tensor result = c.function(a, dims, keepdim);
      ASSERT_EQ(result.dim(), keepdim        ? a.dim()
                              : dims.empty() ? 0
                                             : a.dim() - static_cast<std::int64_t>(dims.size()));
      const std::vector<double> got = values(result);
      ASSERT_EQ(got.size(), groups.size());
      std::size_t i = 0;
      for (const auto& [index, group] : groups) {
        const double wanted = c.reference(group);
        ASSERT_NEAR(got[i++], wanted,
                    (dtype == DType::kF32 ? 2e-6 : 1e-12) * std::max(1.0, std::abs(wanted)))
            << c.name;
      }
    }
  }
}

TEST(ReduceTest, EmptyBracesMeanAllDimensions) {
  const Tensor t = ones({3, 4}), flags = ops::gt(t, 0.0);
  for (const Tensor& result :
       {ops::sum(t, {}), ops::mean(t, {}), ops::prod(t, {}), ops::amax(t, {}), ops::amin(t, {}),
        ops::any(flags, {}), ops::all(flags, {}), ops::logsumexp(t, {}), ops::norm(t, {}),
        ops::var(t, {}), ops::std(t, {}), ops::argmax(t, {}), ops::argmin(t, {})})
    EXPECT_EQ(result.sizes(), IntList{});
  EXPECT_EQ(ops::sum(t, {}, true).sizes(), (IntList{1, 1}));
  EXPECT_EQ(ops::sum(t, {1}).sizes(), (IntList{3}));
  EXPECT_EQ(ops::sum(t, -1).sizes(), (IntList{3}));
  EXPECT_EQ(ops::sum(t, t.dim() - 2, true).sizes(), (IntList{1, 4}));
}

TEST(ReduceTest, LongSumsKeepTheirDigitsAndAreTheSameOnAnyNumberOfThreads) {
  const int threads = num_threads();
  const Tensor a = randn({1000003});
  double exact = 0;
  for (const double v : values(a)) exact += v;
  set_num_threads(1);
  const float one = ops::sum(a).item<float>();
  const Tensor rows = ops::sum(a.slice(0, 0, 1000000).view({1000, 1000}), 0);
  set_num_threads(4);
  EXPECT_EQ(ops::sum(a).item<float>(), one);
  const Tensor again = ops::sum(a.slice(0, 0, 1000000).view({1000, 1000}), 0);
  set_num_threads(threads);
  EXPECT_EQ(std::memcmp(rows.const_data_ptr(), again.const_data_ptr(), rows.nbytes()), 0);
  EXPECT_NEAR(one, exact, 1e-3);
  EXPECT_EQ(ops::sum(ones({1 << 25}, DType::kF32)).item<float>(), 33554432.0f);
}

TEST(ReduceTest, IntegersAndBoolsHaveTheirRules) {
  EXPECT_EQ(ops::sum(full({3}, 200, DType::kU8)).dtype(), DType::kI64);
  EXPECT_EQ(ops::sum(full({3}, 200, DType::kU8)).item<std::int64_t>(), 600);
  EXPECT_EQ(ops::sum(full({5}, true, DType::kBool)).item<std::int64_t>(), 5);
  EXPECT_EQ(ops::amax(tensor<std::int64_t>({INT64_MIN, INT64_MAX})).item<std::int64_t>(),
            INT64_MAX);
  EXPECT_EQ(ops::any(zeros({0}, DType::kBool)).item<bool>(), false);
  EXPECT_EQ(ops::all(zeros({0}, DType::kBool)).item<bool>(), true);
  EXPECT_EQ(ops::any(tensor<float>({0, 2})).item<bool>(), true);
  EXPECT_EQ(ops::all(tensor<float>({0, 2})).item<bool>(), false);
  EXPECT_THROW(ops::mean(arange(3)), InvalidArgument);
  EXPECT_EQ(ops::sum(tensor<Complex64>({Complex64(1, 2), Complex64(3, -1)})).item<Complex64>(),
            Complex64(4, 1));
  EXPECT_EQ(ops::sum(tensor<Half>({Half(1.5f), Half(2.5f)})).dtype(), DType::kF16);
}

// Lines of each length in each layout, with a NaN or infinities of both signs in some of them.
TEST(ReduceTest, ExtremesAndLogarithmsOfSumsHoldInEveryLayout) {
  Random random(19);
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kI32, DType::kI64})
    for (const std::int64_t length : {1, 3, 8, 16, 31, 33, 70, 200}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype_name(dtype), length));
      Tensor rows = to(ops::mul(random_floats(random, {70, length}, DType::kF32), 20), dtype);
      if (is_floating(dtype)) {
        fill_(rows.select(0, 3).select(0, length / 2), NAN);
        fill_(rows.select(0, 4).select(0, 0), INFINITY);
        fill_(rows.select(0, 5).select(0, 0), -INFINITY);
        fill_(rows.select(0, 5).select(0, length - 1), INFINITY);
        fill_(rows.select(0, 6), -INFINITY);
      }
      const Tensor columns = contiguous(rows.t());
      const Tensor gaps = contiguous(ops::stack({rows, rows}, 2)).select(2, 0);
      for (std::int64_t r = 0; r < rows.size(0); ++r) {
        double largest = -INFINITY, total = 0;
        bool has_nan = false;
        for (const double x : values(rows.select(0, r))) {
          has_nan |= std::isnan(x);
          largest = std::max(largest, x);
        }
        for (const double x : values(rows.select(0, r))) total += std::exp(x - largest);
        const double sum = std::isinf(largest) ? largest : largest + std::log(total);
        using Line = std::pair<Tensor, std::int64_t>;
        for (const auto& [t, dim] : {Line(rows, 1), Line(columns, 0), Line(gaps, 1)}) {
          const double got = values(ops::amax(t, dim))[static_cast<std::size_t>(r)];
          EXPECT_TRUE(has_nan ? std::isnan(got) : got == largest) << r << ": " << got;
          if (!is_floating(dtype) || r > 9) continue;
          const double found = values(ops::logsumexp(t, dim))[static_cast<std::size_t>(r)];
          if (has_nan || std::isinf(sum)) {
            EXPECT_TRUE(has_nan ? std::isnan(found) : found == sum) << r;
            continue;
          }
          EXPECT_NEAR(found, sum, (dtype == DType::kBF16 ? 1e-2 : 1e-5) * (1 + std::abs(sum))) << r;
        }
      }
    }
}

TEST(ReduceTest, ProductsOfAllDtypesAreExact) {
  // Rows of ones with a few twos.
  for (const DType d : {DType::kU8, DType::kI8, DType::kI16, DType::kI32, DType::kI64, DType::kF16,
                        DType::kBF16, DType::kF32, DType::kF64})
    for (const std::int64_t length : {2, 33, 40, 5000}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype_name(d), length));
      const Tensor a = ones({5, length}, d), expected = ones({5}, DType::kF64);
      for (std::int64_t r = 0; r < 5; ++r) {
        for (std::int64_t i = 0; i <= r; ++i)
          fill_(a.select(0, r).select(0, (7 * i + r) % length), 2);
        double product = 1;
        for (std::int64_t i = 0; i < length; ++i) product *= element(a, {r, i});
        expected.data_ptr<double>()[r] = product;
      }
      EXPECT_EQ(values(to(ops::prod(a, {1}), DType::kF64)), values(expected));
      EXPECT_EQ(values(to(ops::prod(contiguous(a.t()), {0}), DType::kF64)), values(expected));
    }
}

TEST(ReduceTest, ExtremesOfColumnsKeepNanAtEveryWidth) {
  for (const DType d : {DType::kF32, DType::kF64, DType::kI64, DType::kU8})
    for (const std::int64_t width : {8, 15, 17, 64, 65, 257}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype_name(d), width));
      Tensor a = to(randint(0, 100, {4, width}), d);
      if (is_floating(d)) fill_(a.select(0, 2).select(0, width - 1), NAN);
      const Tensor largest = ops::amax(a, {0}), smallest = ops::amin(a, {0});
      for (std::int64_t c = 0; c < width; ++c) {
        double most = element(a, {0, c}), least = most;
        for (std::int64_t r = 1; r < 4; ++r) {
          const double x = element(a, {r, c});
          if (x > most || std::isnan(x)) most = x;
          if (x < least || std::isnan(x)) least = x;
        }
        const bool is_nan = is_floating(d) && c == width - 1;
        EXPECT_EQ(std::isnan(element(largest, {c})), is_nan);
        EXPECT_EQ(std::isnan(element(smallest, {c})), is_nan);
        if (is_nan) continue;
        EXPECT_EQ(element(largest, {c}), most);
        EXPECT_EQ(element(smallest, {c}), least);
      }
    }
}

// Few columns of many rows are gathered several rows at a time; a copy in the other order has rows.
TEST(ReduceTest, SumsOfSixteenBitsAreRoundedOnce) {
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const std::int64_t rows : {1, 2, 5, 33, 70, 300})
      for (const std::int64_t columns : {1, 3, 8, 31, 40, 257, 1100}) {
        SCOPED_TRACE(fmt::format("{} {} {}", dtype_name(dtype), rows, columns));
        const Tensor wide = to(randint(-9, 10, {rows, columns + 3}), dtype);
        const Tensor turned = to(randint(-9, 10, {columns, rows}), dtype).t();
        const Tensor dense = to(randint(-9, 10, {rows, columns}), dtype);
        const Tensor steps = to(randint(-9, 10, {rows, 2 * columns}), dtype).slice(1, 0, {}, 2);
        for (const Tensor& a : {dense, turned, wide.narrow(1, 2, columns), steps})
          for (const DimVector& dims : {DimVector{0}, DimVector{1}, DimVector{}}) {
            const Tensor exact = to(ops::sum(to(a, DType::kI64), dims), dtype);
            ASSERT_EQ(values(ops::sum(a, dims)), values(exact)) << to_string(a.strides());
          }
      }
  const Tensor a = full({3, 50}, 1, DType::kBF16);
  fill_(a.select(0, 1).select(0, 49), INFINITY);
  fill_(a.select(0, 2).select(0, 20), NAN);
  EXPECT_EQ(values(ops::sum(a, 1))[1], INFINITY);
  EXPECT_TRUE(std::isnan(values(ops::sum(a, 1))[2]));
  EXPECT_EQ(values(ops::sum(a, 0))[49], INFINITY);
}

TEST(ReduceTest, NarrowColumnsGiveWhatRowsGive) {
  for (const DType d : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16, DType::kI64,
                        DType::kI32, DType::kI16, DType::kU8})
    for (const std::int64_t width : {1, 2, 3, 5, 7, 9, 31, 33, 130})
      for (const std::int64_t rows : {1, 7, 400, 1031}) {
        SCOPED_TRACE(fmt::format("{} {} {}", dtype_name(d), rows, width));
        Tensor a = to(randint(0, 3, {rows, width}), d);
        if (is_floating(d)) fill_(a.select(0, rows / 2).select(0, width / 2), NAN);
        const Tensor turned = contiguous(a.t());
        const auto numbers = [](const Tensor& t) {
          std::vector<double> found = values(to(t, DType::kF64));
          for (double& x : found)
            if (std::isnan(x)) x = INFINITY;  // which equals itself
          return found;
        };
        EXPECT_EQ(numbers(ops::sum(a, 0)), numbers(ops::sum(turned, 1)));
        EXPECT_EQ(numbers(ops::amax(a, 0)), numbers(ops::amax(turned, 1)));
        EXPECT_EQ(numbers(ops::amin(a, 0)), numbers(ops::amin(turned, 1)));
        EXPECT_EQ(numbers(ops::cumsum(a, 0)), numbers(ops::cumsum(turned, 1).t()));
        const Tensor signs = to(ops::sub(ops::mul(to(ops::ge(a, 1), DType::kI64), 2), 1), d);
        EXPECT_EQ(numbers(ops::prod(signs, 0)), numbers(ops::prod(contiguous(signs.t()), 1)));
        EXPECT_EQ(numbers(ops::cumprod(signs, 0)),
                  numbers(ops::cumprod(contiguous(signs.t()), 1).t()));
      }
}

TEST(ReduceTest, EmptyAndSpecialInputs) {
  EXPECT_EQ(ops::sum(zeros({0, 4})).item<float>(), 0);
  EXPECT_EQ(values(ops::sum(zeros({0, 4}), 0)), (std::vector<double>{0, 0, 0, 0}));
  EXPECT_EQ(ops::prod(zeros({0})).item<float>(), 1);
  EXPECT_TRUE(std::isnan(ops::mean(zeros({0})).item<float>()));
  EXPECT_THROW(ops::amax(zeros({0})), InvalidArgument);
  EXPECT_THROW(ops::argmax(zeros({3, 0}), 1), InvalidArgument);
  EXPECT_EQ(ops::amax(zeros({0, 3}), 1).numel(), 0);
  EXPECT_TRUE(std::isnan(ops::amax(tensor<float>({1, NAN, 2})).item<float>()));
  EXPECT_EQ(ops::logsumexp(full({3}, -INFINITY)).item<float>(), -INFINITY);
  EXPECT_NEAR(ops::logsumexp(full({2}, 1000.0)).item<float>(), 1000.6931, 1e-3);
  EXPECT_THROW(ops::sum(zeros({2}), {0, 0}), InvalidArgument);
  EXPECT_THROW(ops::sum(zeros({2}), 1), InvalidArgument);
}

// What is not a number or infinite stays so; the result is no view of its input.
TEST(ReduceTest, DimensionsOfOneElementGiveTheElements) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const Tensor numbers = tensor<double>({-2.5, 0, 3, kInf, -kInf, std::nan("")});
  const auto of = [&](const Tensor& t) { return values(to(t, DType::kF64)); };
  for (const DType d : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16})
    for (const std::int64_t dim : {0, 1}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype_name(d), dim));
      const Tensor a = to(numbers, d).view(dim == 0 ? DimVector{1, 6} : DimVector{6, 1});
      const std::string same = fmt::format("{}", fmt::join(of(a), " "));
      const auto text = [&](const Tensor& t) { return fmt::format("{}", fmt::join(of(t), " ")); };
      for (const Tensor& t : {ops::sum(a, dim), ops::prod(a, dim), ops::mean(a, dim),
                              ops::amax(a, dim), ops::amin(a, dim)}) {
        EXPECT_EQ(text(t), same);
        EXPECT_EQ(t.dtype(), d);
        EXPECT_NE(t.const_data_ptr(), a.const_data_ptr());
      }
      EXPECT_EQ(text(ops::norm(a, dim)), "2.5 0 3 inf inf nan");
      EXPECT_EQ(text(ops::any(a, dim)), "1 0 1 1 1 1");
      EXPECT_EQ(text(ops::all(a, dim)), "1 0 1 1 1 1");
      EXPECT_EQ(text(ops::argmax(a, dim)), "0 0 0 0 0 0");
      EXPECT_EQ(text(ops::argmin(a, dim)), "0 0 0 0 0 0");
      const Tensor first = ops::softmax(a, dim), second = ops::log_softmax(a, dim);
      EXPECT_EQ(text(first.view({6}).narrow(0, 0, 3)), "1 1 1");
      EXPECT_EQ(text(second.view({6}).narrow(0, 0, 3)), "0 0 0");
      for (const Tensor& t : {first, second})
        EXPECT_TRUE(ops::all(ops::isnan(t.view({6}).narrow(0, 3, 3))).item<bool>());
    }
  const Tensor bytes = tensor<std::uint8_t>({0, 7}, {2, 1});
  EXPECT_EQ(ops::sum(bytes, 1).dtype(), DType::kI64);
  EXPECT_EQ(values(ops::any(bytes, 1)), (std::vector<double>{0, 1}));
  EXPECT_FALSE(ops::any(empty({0, 3})).item<bool>());
  EXPECT_TRUE(ops::all(empty({0, 3})).item<bool>());
}

TEST(ReduceTest, ArgExtremesFindTheFirst) {
  const Tensor t = tensor<float>({3, 7, 7, 1, 1, 5}, {2, 3});
  EXPECT_EQ(values(ops::argmax(t, 1)), (std::vector<double>{1, 2}));
  EXPECT_EQ(values(ops::argmin(t, 0)), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(ops::argmax(t).item<std::int64_t>(), 1);
  EXPECT_EQ(ops::argmax(t.t()).item<std::int64_t>(), 2);
  EXPECT_EQ(ops::argmax(tensor<float>({1, NAN, 9})).item<std::int64_t>(), 1);
  EXPECT_EQ(ops::argmax(t, 1, true).sizes(), (IntList{2, 1}));
  EXPECT_EQ(ops::argmax(full({}, 3)).item<std::int64_t>(), 0);
}

// The first of equal extremes, wherever it lies among vectors and stretches; the first NaN.
TEST(ReduceTest, ArgExtremesHoldForEveryLengthAndDType) {
  for (const DType d : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI64,
                        DType::kI32, DType::kI16, DType::kI8, DType::kU8})
    for (const std::int64_t length : {1, 2, 7, 15, 16, 17, 33, 63, 64, 65, 127, 2047, 2048, 2049,
                                      2063, 2064, 4111, 5000}) {
      Tensor rows = to(randint(0, 100, {9, length}), d);
      if (is_floating(d))
        for (const std::int64_t row : {1, 4, 8}) {
          fill_(rows.select(0, row).select(0, length * row / 9), NAN);
          fill_(rows.select(0, row).select(0, length - 1), NAN);
        }
      const std::vector<double> x = values(rows);
      const std::vector<double> largest = values(ops::argmax(rows, 1));
      const std::vector<double> smallest = values(ops::argmin(rows, 1));
      for (std::int64_t r = 0; r < 9; ++r) {
        const double* const row = x.data() + r * length;
        std::int64_t high = 0, low = 0;
        for (std::int64_t i = 1; i < length; ++i) {
          if (!std::isnan(row[high]) && (row[i] > row[high] || std::isnan(row[i]))) high = i;
          if (!std::isnan(row[low]) && (row[i] < row[low] || std::isnan(row[i]))) low = i;
        }
        const auto at = static_cast<std::size_t>(r);
        EXPECT_EQ(largest[at], static_cast<double>(high)) << dtype_name(d) << " " << length;
        EXPECT_EQ(smallest[at], static_cast<double>(low)) << dtype_name(d) << " " << length;
      }
    }
}

TEST(ReduceTest, LogarithmsOfSumsOverSeveralDimensionsAreThoseOfOne) {
  const Tensor a = ops::mul(randn({32, 48, 60}), 5);
  const double all = ops::logsumexp(a.reshape({-1}), {0}).item<float>();
  EXPECT_NEAR(ops::logsumexp(a).item<float>(), all, 1e-5);
  const auto same = [](const Tensor& found, const Tensor& wanted) {
    const std::vector<double> x = values(found), y = values(wanted);
    ASSERT_EQ(x.size(), y.size());
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 1e-5);
  };
  same(ops::logsumexp(a, {0, 2}), ops::logsumexp(a.permute({1, 0, 2}).reshape({48, -1}), {1}));
  same(ops::logsumexp(a, {1, 2}), ops::logsumexp(a.reshape({32, -1}), {1}));
  same(ops::logsumexp(a.permute({2, 1, 0}), {0, 2}),
       ops::logsumexp(a.permute({1, 2, 0}).reshape({48, -1}), {1}));
  for (const std::int64_t length : {1, 2, 3, 31})  // short rows, turned
    same(ops::logsumexp(a.reshape({-1})
                            .narrow(0, 0, 2000 * length)
                            .view({2000, length}), {1}),
         ops::log(ops::sum(ops::exp(a.reshape({-1}).narrow(0, 0, 2000 * length)
                                        .view({2000, length})), {1})));
  EXPECT_EQ(ops::logsumexp(full({256, 256}, -INFINITY)).item<float>(), -INFINITY);
  const Tensor infinite = zeros({256, 256});
  fill_(infinite.select(0, 3).select(0, 5), INFINITY);
  EXPECT_EQ(ops::logsumexp(infinite).item<float>(), INFINITY);
  fill_(infinite.select(0, 200).select(0, 5), NAN);
  EXPECT_TRUE(std::isnan(ops::logsumexp(infinite).item<float>()));
}

TEST(ScanTest, RunningSumsAndOrder) {
  const Tensor t = tensor<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(values(ops::cumsum(t, 0)), (std::vector<double>{1, 2, 3, 5, 7, 9}));
  EXPECT_EQ(values(ops::cumsum(t.t(), 1)), (std::vector<double>{1, 5, 2, 7, 3, 9}));
  EXPECT_EQ(values(ops::cumprod(arange(1, 5), 0)), (std::vector<double>{1, 2, 6, 24}));
  EXPECT_EQ(ops::cumsum(full({3}, true, DType::kBool), 0).dtype(), DType::kI64);
  const Tensor mixed = tensor<float>({2, NAN, -1, 2, 0});
  const auto [sorted, order] = ops::sort(mixed);
  EXPECT_EQ(values(order), (std::vector<double>{2, 4, 0, 3, 1}));
  EXPECT_TRUE(std::isnan(values(sorted)[4]));
  EXPECT_EQ(values(ops::argsort(mixed, 0, true)), (std::vector<double>{1, 0, 3, 4, 2}));
  const auto [top, places] = ops::topk(tensor<float>({1, 9, 3, 9}), 3);
  EXPECT_EQ(values(top), (std::vector<double>{9, 9, 3}));
  EXPECT_EQ(values(places), (std::vector<double>{1, 3, 2}));
  EXPECT_THROW(ops::topk(mixed, 6), InvalidArgument);
  EXPECT_EQ(ops::sort(full({}, 3)).first.dim(), 0);
  EXPECT_EQ(ops::cumsum(zeros({2, 0}), 1).numel(), 0);
}

// Rows go several at once, columns many.
TEST(ScanTest, EachOfManyRowsHasItsOwnSum) {
  for (const std::int64_t rows : {1, 3, 4, 7, 70}) {
    const Tensor t = randn({rows, 300}, DType::kF64);
    const Tensor columns = contiguous(t.t());
    EXPECT_EQ(values(ops::cumsum(t, 1)), values(ops::cumsum(columns, 0).t())) << rows;
    EXPECT_EQ(values(ops::cumprod(t, 1)), values(ops::cumprod(columns, 0).t())) << rows;
  }
}

// Columns in strips, with a rest that is a strip and one that is not; 16-bit floats are widened.
TEST(SoftmaxTest, ColumnsGiveWhatRowsGive) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16})
    for (const std::int64_t length : {9, 1200, 5000})
      for (const std::int64_t columns : {15, 17, 25, 40, 72, 241}) {
        if (length * columns > 100'000) continue;
        const Tensor a = to(ops::mul(randn({2, length, columns}), 3), dtype);
        const Tensor wide = to(a, DType::kF64), turned = contiguous(wide.transpose(1, 2));
        const double unit = dtype == DType::kF64   ? 1e-13
                            : dtype == DType::kF32 ? 1e-6
                            : dtype == DType::kF16 ? 0x1p-10
                                                   : 0x1p-7;
        const auto expect_near = [&](const Tensor& got, const Tensor& wanted) {
          const Tensor difference = ops::abs(ops::sub(to(got, DType::kF64), wanted));
          const Tensor most = ops::amax(ops::div(difference, ops::add(ops::abs(wanted), 0.1)));
          EXPECT_LE(most.item<double>(), 8 * unit) << dtype_name(dtype) << length << ' ' << columns;
        };
        expect_near(ops::softmax(a, 1), ops::softmax(turned, 2).transpose(1, 2));
        expect_near(ops::log_softmax(a, 1), ops::log_softmax(turned, 2).transpose(1, 2));
        expect_near(ops::logsumexp(a, {1}), ops::logsumexp(turned, {2}));
        expect_near(ops::cumsum(to(ops::gt(a, 0), dtype), 1).narrow(1, 0, 9),
                    ops::cumsum(to(ops::gt(wide, 0), DType::kF64), 1).narrow(1, 0, 9));
      }
}

TEST(SoftmaxTest, RowsSumToOneWhateverTheirValues) {
  Random random(3);
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16})
    for (const std::int64_t dim : {0, 1, 2}) {
      const Tensor a = ops::mul(random_floats(random, {3, 37, 5}, dtype), 30);
      const Tensor sums = ops::sum(to(ops::softmax(a, dim), DType::kF64), dim);
      for (const double sum : values(sums))
        EXPECT_NEAR(sum, 1, dtype == DType::kBF16 ? 0.03 : 1e-5);
      const Tensor logs = ops::exp(to(ops::log_softmax(a, dim), DType::kF64));
      for (const double sum : values(ops::sum(logs, dim)))
        EXPECT_NEAR(sum, 1, dtype == DType::kBF16 ? 0.3 : 1e-4);
    }
  EXPECT_EQ(ops::softmax(tensor<float>({-INFINITY, 0}), 0).const_data_ptr<float>()[0], 0);
  EXPECT_TRUE(std::isnan(values(ops::softmax(full({2}, -INFINITY), 0))[0]));
  EXPECT_TRUE(std::isnan(values(ops::softmax(tensor<float>({0, NAN}), 0))[0]));
  EXPECT_EQ(ops::softmax(full({}, 3), 0).item<float>(), 1);
  EXPECT_THROW(ops::softmax(arange(3), 0), InvalidArgument);
}

}  // namespace
}  // namespace tenon
