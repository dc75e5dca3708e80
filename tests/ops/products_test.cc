#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "ops/reference.h"
#include "support/refusal.h"
#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/operators.h"

namespace tenon {
namespace {

using testing::element;
using testing::for_each_index;
using testing::Index;
using testing::random_floats;
using testing::values;

TEST(MatmulTest, EveryOrderOfOperandsAgreesWithPlainLoops) {
  Random random(41);
  for (int round = 0; round < 120; ++round) {
    SCOPED_TRACE(round);
    const auto size = [&] { return static_cast<std::int64_t>(random.between(1, 9)); };
    const std::int64_t m = size(), n = size(), k = random.chance(0.1) ? 0 : size();
    const std::int64_t batch = size();
    DimVector a_sizes, b_sizes;
    if (random.chance(0.5)) a_sizes.push_back(random.chance(0.3) ? 1 : batch);
    if (random.chance(0.5)) b_sizes.push_back(random.chance(0.3) ? 1 : batch);
    for (const std::int64_t s : {m, k}) a_sizes.push_back(s);
    for (const std::int64_t s : {k, n}) b_sizes.push_back(s);
    const DType dtype = random.chance(0.5) ? DType::kF32 : DType::kF64;
    Tensor a = random_floats(random, a_sizes, dtype), b = random_floats(random, b_sizes, dtype);
    if (random.chance(0.3)) a = contiguous(a.transpose(-1, -2)).transpose(-1, -2);
    if (random.chance(0.3)) b = contiguous(b.transpose(-1, -2)).transpose(-1, -2);
    const Tensor c = ops::matmul(a, b);
    DimVector batch_sizes(c.sizes().data(), static_cast<std::size_t>(c.dim() - 2));
    DimVector wide_a = batch_sizes, wide_b = batch_sizes;
    for (const std::int64_t s : {m, k}) wide_a.push_back(s);
    for (const std::int64_t s : {k, n}) wide_b.push_back(s);
    const Tensor full_a = a.expand(wide_a), full_b = b.expand(wide_b);
    for_each_index(c.sizes(), [&](const Index& index) {
      Index of_a = index, of_b = index;
      double sum = 0;
      for (std::int64_t l = 0; l < k; ++l) {
        of_a.back() = l;
        of_b[of_b.size() - 2] = l;
        sum += element(full_a, of_a) * element(full_b, of_b);
      }
      ASSERT_NEAR(element(c, index), sum, dtype == DType::kF32 ? 1e-4 : 1e-11);
    });
  }
}

TEST(MatmulTest, ProductsWithAVectorAgreeOnAnyNumberOfThreads) {
  Random random(43);
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16})
    for (const std::int64_t k : {1, 7, 64, 300})
      for (const std::int64_t n : {1, 3, 255, 1000}) {
        SCOPED_TRACE(fmt::format("{} {} {}", dtype_name(dtype), k, n));
        const Tensor wide = random_floats(random, {k, n}, DType::kF64);
        const Tensor line = random_floats(random, {1, 2 * k}, DType::kF64);
        const Tensor b = to(wide, dtype), x = to(line, dtype).slice(1, 0, 2 * k, 2);
        // In f64 from the rounded numbers.
        const Tensor exact = ops::sum(ops::mul(to(b, DType::kF64), to(x, DType::kF64).t()), {0});
        const Tensor turned = contiguous(b.t()).t();
        const int before = num_threads();
        for (const Tensor& matrix : {b, turned}) {
          set_num_threads(1);
          const std::vector<double> got = values(ops::matmul(x, matrix));
          const std::vector<double> as_column = values(ops::matmul(matrix.t(), x.t()));
          set_num_threads(3);
          EXPECT_EQ(values(ops::matmul(x, matrix)), got);
          set_num_threads(before);
          const std::vector<double> wanted = values(exact);
          const double unit = dtype == DType::kF64 ? 1e-13 : dtype == DType::kF32 ? 1e-5 : 1e-2;
          for (std::size_t i = 0; i < wanted.size(); ++i) {
            ASSERT_NEAR(got[i], wanted[i], unit * (1 + static_cast<double>(k))) << i;
            ASSERT_NEAR(as_column[i], wanted[i], unit * (1 + static_cast<double>(k))) << i;
          }
        }
      }
}

// Vectors by the few, products of a kernel's own, and batches of small ones, each in four layouts:
// whole numbers, whose sums are exact in f32.
TEST(MatmulTest, FewVectorsAndBatchesOfSmallProductsAreExact) {
  Random random(44);
  for (int round = 0; round < 300; ++round) {
    const auto pick = [&](std::uint64_t low, std::uint64_t high) {
      return static_cast<std::int64_t>(random.between(low, high));
    };
    constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};
    const DType dtype = kDTypes[round % 4];
    const bool is_few = random.chance(0.6);
    const std::int64_t batch = is_few ? pick(1, 2) : pick(1, 40);
    std::int64_t m = pick(1, random.chance(0.2) ? 70 : 9), n = is_few ? pick(1, 600) : pick(1, 40);
    const std::int64_t k = is_few ? pick(1, 300) : pick(1, 40);
    if (random.chance(0.5)) std::swap(m, n);
    const auto whole = [&](std::int64_t rows, std::int64_t columns) {
      DimVector sizes{random.chance(0.2) ? 1 : batch, rows, columns};
      const bool turned = random.chance(0.5);
      if (turned) std::swap(sizes[1], sizes[2]);
      if (random.chance(0.3)) sizes[2] += 3;
      Tensor t = to(ops::round(ops::mul(random_floats(random, sizes, DType::kF64), 2)), dtype);
      t = t.narrow(2, 0, turned ? rows : columns);
      return turned ? t.transpose(1, 2) : t;
    };
    const Tensor a = whole(m, k), b = whole(k, n);
    SCOPED_TRACE(fmt::format("round {}: {} {} by {}, strides {} and {}", round, dtype_name(dtype),
                             to_string(a.sizes()), to_string(b.sizes()), to_string(a.strides()),
                             to_string(b.strides())));
    const Tensor exact = ops::sum(ops::mul(to(a, DType::kF64).unsqueeze(-1),
                                           to(b, DType::kF64).unsqueeze(-3)), {-2});
    ASSERT_EQ(values(ops::matmul(a, b)), values(to(exact, dtype)));
  }
}

TEST(MatmulTest, FewVectorsMeetAMatrixLargerThanACache) {
  Generator generator(45);
  const Tensor matrix = ops::round(randn({1100, 1000}, DType::kF32, generator));
  for (const std::int64_t few : {1, 3, 8}) {
    const Tensor left = ops::round(randn({few, 1100}, DType::kF32, generator));
    const Tensor right = ops::round(randn({1000, few}, DType::kF32, generator));
    const auto in_double = [](const Tensor& a, const Tensor& b) {
      return to(ops::matmul(to(a, DType::kF64), to(b, DType::kF64)), DType::kF32);
    };
    EXPECT_EQ(values(ops::matmul(left, matrix)), values(in_double(left, matrix)));
    EXPECT_EQ(values(ops::matmul(matrix, right)), values(in_double(matrix, right)));
  }
}

TEST(MatmulTest, RowsThatShareTheirPlaceInACacheAreExact) {
  Generator generator(46);
  for (const DType dtype : {DType::kF32, DType::kF64})
    for (const std::int64_t k : {9, 27, 300}) {
      const Tensor matrix = to(randint(-3, 4, {k, 2048}), dtype);
      for (const std::int64_t m : {3, 5, 12, 100}) {
        const Tensor left = to(randint(-3, 4, {m, k}), dtype);
        const Tensor exact = ops::matmul(to(left, DType::kI64), to(matrix, DType::kI64));
        EXPECT_EQ(values(ops::matmul(left, matrix)), values(exact)) << m << " " << k;
      }
    }
}

TEST(MatmulTest, InfinityAndNanGoThroughVectors) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16})
    for (const std::int64_t columns : {1, 3, 40}) {
      const Tensor a = to(full({50, 70}, 1), dtype), b = to(full({70, columns}, 1), dtype);
      fill_(a.select(0, 3).select(0, 69), INFINITY);
      fill_(a.select(0, 49).select(0, 5), NAN);
      const std::vector<double> got = values(ops::matmul(a, b));
      for (std::int64_t i = 0; i < 50 * columns; ++i) {
        const std::int64_t row = i / columns;
        const double found = got[static_cast<std::size_t>(i)];
        if (row == 49)
          ASSERT_TRUE(std::isnan(found));
        else
          ASSERT_EQ(found, row == 3 ? INFINITY : 70);
      }
    }
}

TEST(MatmulTest, VectorsIntegersComplexAndHalves) {
  const Tensor v = tensor<float>({1, 2, 3});
  const Tensor m = arange(6, DType::kF32).view({2, 3});
  EXPECT_EQ(ops::matmul(v, v).item<float>(), 14);
  EXPECT_EQ(values(ops::matmul(m, v)), (std::vector<double>{8, 26}));
  EXPECT_EQ(values(ops::matmul(tensor<float>({1, 1}), m)), (std::vector<double>{3, 5, 7}));
  EXPECT_EQ(values(ops::outer(v, v))[5], 6);
  const Tensor i = to(m, DType::kI64);
  EXPECT_EQ(values(ops::matmul(i, i.t())), (std::vector<double>{5, 14, 14, 50}));
  const Tensor z = tensor<Complex64>({Complex64(0, 1), Complex64(2, 0)}, {1, 2});
  EXPECT_EQ(ops::matmul(z, z.t()).item<Complex64>(), Complex64(3, 0));
  EXPECT_EQ(ops::matmul(to(m, DType::kBF16), to(v, DType::kBF16)).dtype(), DType::kBF16);
  EXPECT_EQ(values(ops::matmul(to(m, DType::kF16), to(v, DType::kF16))),
            (std::vector<double>{8, 26}));
}

TEST(MatmulTest, ShapesThatDoNotFitAreShown) {
  try {
    ops::matmul(empty({2, 3}), empty({4, 5}));
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("[2, 3] and [4, 5]"), std::string::npos);
  }
  EXPECT_THROW(ops::matmul(empty({2, 3}), empty({3, 2}, DType::kF64)), InvalidArgument);
  EXPECT_THROW(ops::matmul(empty({}), empty({3})), InvalidArgument);
  EXPECT_THROW(ops::matmul(empty({2, 2, 3}), empty({3, 3, 2})), InvalidArgument);
  EXPECT_THROW(ops::bmm(empty({2, 3}), empty({3, 2})), InvalidArgument);
  EXPECT_THROW(ops::linear(empty({2, 3}), empty({5, 4})), InvalidArgument);
  EXPECT_THROW(ops::linear(empty({2, 3}), empty({5, 3}), empty({4})), InvalidArgument);
}

TEST(MatmulTest, ResultsAreTheSameOnAnyNumberOfThreads) {
  const int threads = num_threads();
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const auto numbers = [&](IntList sizes) { return to(randn(sizes), dtype); };
    const Tensor a = numbers({257, 301}), b = numbers({301, 203}), batch = numbers({64, 33, 35});
    const Tensor flat = numbers({12, 700}), wide = numbers({700, 1000}), tall = numbers({900, 30});
    const auto products = [&] {
      return std::vector<Tensor>{ops::matmul(a, b),
                                 ops::matmul(batch, batch.transpose(1, 2)),
                                 ops::matmul(flat, wide),
                                 ops::matmul(wide.t(), flat.t()),
                                 ops::matmul(tall, tall.t()),
                                 ops::matmul(tall.t(), wide.t().slice(0, 0, 900))};
    };
    set_num_threads(1);
    const std::vector<Tensor> one = products();
    set_num_threads(3);
    const std::vector<Tensor> same = products();
    set_num_threads(threads);
    for (std::size_t i = 0; i < one.size(); ++i)
      EXPECT_EQ(std::memcmp(one[i].const_data_ptr(), same[i].const_data_ptr(), one[i].nbytes()), 0)
          << i;
  }
}

TEST(MatmulTest, ABiasOf16BitsIsAddedBeforeTheOneRounding) {
  for (const auto& [m, k, n] : std::vector<std::array<std::int64_t, 3>>{
           {40, 64, 100}, {3, 5, 7}, {64, 128, 1024}, {1000, 70, 64}}) {
    const auto whole = [](IntList sizes, std::int64_t end) {
      return to(randint(-end, end, sizes), DType::kBF16);
    };
    const Tensor a = whole({m, k}, 9), w = whole({n, k}, 9), bias = whole({n}, 100);
    const Tensor exact = ops::linear(to(a, DType::kF32), to(w, DType::kF32), to(bias, DType::kF32));
    EXPECT_EQ(values(ops::linear(a, w, bias)), values(to(exact, DType::kBF16))) << m;
    EXPECT_EQ(values(ops::addmm(bias, a, w.t())), values(to(exact, DType::kBF16))) << m;
  }
}

double padded(const Tensor& a, std::int64_t n, std::int64_t c, std::int64_t y, std::int64_t x) {
  if (y < 0 || x < 0 || y >= a.size(2) || x >= a.size(3)) return 0;
  return element(a, {n, c, y, x});
}

TEST(ConvTest, EveryOptionAgreesWithPlainLoops) {
  Random random(51);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    const auto pick = [&](std::int64_t low, std::int64_t high) {
      return static_cast<std::int64_t>(
          random.between(static_cast<std::uint64_t>(low), static_cast<std::uint64_t>(high)));
    };
    ops::ConvOptions o;
    o.groups = pick(1, 3);
    o.stride = {pick(1, 3), pick(1, 2)};
    o.padding = {pick(0, 2), pick(0, 3)};
    o.dilation = {pick(1, 2), pick(1, 3)};
    const std::int64_t channels = pick(1, 2), filters = pick(1, 3) * o.groups;
    const DType dtype = random.chance(0.5) ? DType::kF32 : DType::kF64;
    const Tensor a =
        random_floats(random, {pick(1, 2), channels * o.groups, pick(7, 10), pick(8, 11)}, dtype);
    const Tensor w = random_floats(random, {filters, channels, pick(1, 3), pick(1, 3)}, dtype);
    const Tensor bias = random_floats(random, {filters}, dtype);
    const Tensor out = ops::conv2d(a, w, bias, o);
    for_each_index(out.sizes(), [&](const Index& i) {
      double sum = element(bias, {i[1]});
      const std::int64_t first = i[1] / (filters / o.groups) * channels;
      for (std::int64_t c = 0; c < channels; ++c)
        for (std::int64_t y = 0; y < w.size(2); ++y)
          for (std::int64_t x = 0; x < w.size(3); ++x)
            sum += element(w, {i[1], c, y, x}) *
                   padded(a, i[0], first + c,
                          i[2] * o.stride.height - o.padding.height + y * o.dilation.height,
                          i[3] * o.stride.width - o.padding.width + x * o.dilation.width);
      ASSERT_NEAR(element(out, i), sum, dtype == DType::kF32 ? 1e-4 : 1e-11);
    });
  }
}

// Large enough for oneDNN; the same in f64 is computed by columns and products.
void expect_the_same_in_double(Random& random, IntList sizes, IntList weight,
                               const ops::ConvOptions& o) {
  const int threads = num_threads();
  const Tensor a = random_floats(random, sizes, DType::kF32);
  const Tensor w = random_floats(random, weight, DType::kF32);
  const Tensor bias = random_floats(random, {weight[0]}, DType::kF32);
  set_num_threads(1);
  const Tensor one = ops::conv2d(a, w, bias, o);
  set_num_threads(4);
  const Tensor four = ops::conv2d(a, w, bias, o);
  set_num_threads(threads);
  EXPECT_EQ(std::memcmp(one.const_data_ptr(), four.const_data_ptr(), one.nbytes()), 0);
  const Tensor exact =
      ops::conv2d(to(a, DType::kF64), to(w, DType::kF64), to(bias, DType::kF64), o);
  EXPECT_LT(ops::amax(ops::abs(ops::sub(to(one, DType::kF64), exact))).item<double>(), 1e-3);
}

TEST(ConvTest, LargeOnesAgreeWithThoseInDoubleOnAnyNumberOfThreads) {
  Random random(71);
  for (const std::int64_t height : {33, 197})  // threads share out images, or rows
    for (const ops::ConvOptions& o :
         {ops::ConvOptions{}, ops::ConvOptions{2, 3, 1, 1, 0},
          ops::ConvOptions{1, {2, 1}, {2, 1}, 2, 0}, ops::ConvOptions{2, 1, 1, 16, 0}}) {
      SCOPED_TRACE(::testing::Message() << height << " rows, " << o.groups << " groups");
      for (const std::int64_t images : {1, 2})
        expect_the_same_in_double(random, {images, 16, height, 40}, {32, 16 / o.groups, 5, 3}, o);
    }
}

TEST(ConvTest, ThreadsThatCopyALargeWeightAgree) {
  Random random(72);
  for (const std::int64_t filters : {240, 256, 416, 448})
    expect_the_same_in_double(random, {1, 128, 14, 14}, {filters, 128, 3, 3}, {1, 1, 1, 1, 0});
}

// Elements of bf16 are exact in f64; sums are of f32, and rounded once.
double relative_error(const Tensor& got, const Tensor& exact) {
  const Tensor apart = ops::abs(ops::sub(to(got, DType::kF64), exact));
  return ops::amax(ops::div(apart, ops::add(ops::abs(exact), 1))).item<double>();
}

TEST(ConvTest, LargeOnesOfSixteenBitsAgreeWithThoseInDouble) {
  Random random(73);
  for (int round = 0; round < 60; ++round) {
    const auto pick = [&](std::uint64_t low, std::uint64_t high) {
      return static_cast<std::int64_t>(random.between(low, high));
    };
    const std::int64_t channels = random.chance(0.5) ? 16 * pick(1, 3) : pick(1, 40);
    ops::ConvOptions o;
    o.groups = random.chance(0.3) && channels % 2 == 0 ? 2 : 1;
    o.stride = {pick(1, 2), pick(1, 3)};
    o.padding = {pick(0, 2), pick(0, 2)};
    o.dilation = {pick(1, 2), pick(1, 2)};
    const DType dtype = random.chance(0.7) ? DType::kBF16 : DType::kF16;
    const std::int64_t filters = o.groups * pick(1, 30);
    const auto numbers = [&](IntList sizes) {
      return to(random_floats(random, sizes, DType::kF32), dtype);
    };
    const Tensor a = numbers({pick(1, 3), channels, pick(20, 40), pick(20, 40)});
    const Tensor w = numbers({filters, channels / o.groups, pick(1, 3), pick(1, 4)});
    const Tensor bias = random.chance(0.5) ? numbers({filters}) : Tensor();
    const auto exactly = [](const Tensor& t) { return t.defined() ? to(t, DType::kF64) : t; };
    SCOPED_TRACE(fmt::format("{} by {}, {} groups, {}", to_string(a.sizes()), to_string(w.sizes()),
                             o.groups, dtype_name(dtype)));
    const double unit = dtype == DType::kBF16 ? 1.0 / 256 : 1.0 / 2048;
    const Tensor out = ops::conv2d(a, w, bias, o);
    ASSERT_EQ(out.dtype(), dtype);
    EXPECT_LE(relative_error(out, ops::conv2d(exactly(a), exactly(w), exactly(bias), o)),
              unit + 1e-4);
    // Back from what has as many channels as the weight has filters.
    const Tensor offset = bias.defined() ? bias.narrow(0, 0, 1).expand({channels}) : bias;
    const Tensor back = ops::conv_transpose2d(out, w, offset, o);
    ASSERT_EQ(back.dtype(), dtype);
    const Tensor exact = ops::conv_transpose2d(exactly(out), exactly(w), exactly(offset), o);
    EXPECT_LE(relative_error(back, exact), unit + 1e-3);
  }
}

// The transposed convolution is the adjoint: <conv(a), b> = <a, conv_transpose(b)>.
TEST(ConvTest, TheTransposedOneIsTheAdjoint) {
  Random random(61);
  for (int round = 0; round < 30; ++round) {
    ops::ConvOptions o;
    o.groups = static_cast<std::int64_t>(random.between(1, 2));
    o.stride = static_cast<std::int64_t>(random.between(1, 3));
    o.padding = static_cast<std::int64_t>(random.between(0, 1));
    const Tensor w = random_floats(random, {4, 3, 3, 2}, DType::kF64);
    const Tensor b = random_floats(random, {2, 4, 5, 6}, DType::kF64);
    const Tensor back = ops::conv_transpose2d(b, w, {}, o);
    const Tensor a = random_floats(random, back.sizes(), DType::kF64);
    const double left = ops::sum(ops::mul(ops::conv2d(a, w, {}, o), b)).item<double>();
    EXPECT_NEAR(left, ops::sum(ops::mul(a, back)).item<double>(), 1e-9);
  }
}

TEST(ConvTest, WhatDoesNotFitIsRefused) {
  const Tensor a = empty({1, 4, 5, 5});
  EXPECT_THROW(ops::conv2d(a, empty({2, 3, 3, 3})), InvalidArgument);
  EXPECT_THROW(ops::conv2d(a, empty({2, 4, 9, 9})), InvalidArgument);
  EXPECT_THROW(ops::conv2d(a, empty({2, 4, 3, 3}), empty({3})), InvalidArgument);
  EXPECT_THROW(ops::conv2d(a, empty({3, 2, 3, 3}), {}, {1, 0, 1, 2}), InvalidArgument);
  EXPECT_THROW(ops::conv2d(a, empty({2, 4, 3, 3}), {}, {0}), InvalidArgument);
  EXPECT_THROW(ops::conv2d(empty({4, 5, 5}), empty({2, 4, 3, 3})), InvalidArgument);
  EXPECT_EQ(ops::conv2d(empty({0, 4, 5, 5}), empty({2, 4, 3, 3})).sizes(), (IntList{0, 2, 3, 3}));
}

TEST(PoolTest, LooksAtTheRightElements) {
  const Tensor a = arange(16, DType::kF32).view({1, 1, 4, 4});
  EXPECT_EQ(values(ops::max_pool2d(a, {2})), (std::vector<double>{5, 7, 13, 15}));
  EXPECT_EQ(values(ops::max_pool2d(a, {3, 2, 1})), (std::vector<double>{5, 7, 13, 15}));
  EXPECT_EQ(values(ops::avg_pool2d(a, {2})), (std::vector<double>{2.5, 4.5, 10.5, 12.5}));
  EXPECT_EQ(values(ops::avg_pool2d(a, {2, 2, 1})),
            (std::vector<double>{0, 0.75, 0.75, 3, 7.5, 4.5, 3, 6.75, 3.75}));
  EXPECT_EQ(values(ops::avg_pool2d(a, {2, 2, 1, false}))[0], 0);
  EXPECT_EQ(values(ops::avg_pool2d(a, {2, 2, 1, false}))[1], 1.5);
  EXPECT_EQ(values(ops::adaptive_avg_pool2d(a, 1)), (std::vector<double>{7.5}));
  EXPECT_EQ(ops::adaptive_avg_pool2d(a, {3, 2}).sizes(), (IntList{1, 1, 3, 2}));
  EXPECT_NE(testing::refusal([&] { ops::adaptive_avg_pool2d(a, {0, 2}); }).find("a size of 0 x 2"),
            std::string::npos);
  EXPECT_THROW(ops::max_pool2d(a, {2, 1, 2}), InvalidArgument);
  EXPECT_THROW(ops::max_pool2d(a, {9}), InvalidArgument);
  EXPECT_TRUE(std::isnan(values(ops::max_pool2d(full({1, 2, 2}, NAN), {2}))[0]));
}

TEST(NormTest, LayerNormCentresAndScales) {
  Random random(7);
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const Tensor a = ops::add(random_floats(random, {4, 50}, dtype), 100);
    const Tensor out = ops::layer_norm(a, {50}, {}, {}, 0);
    for (const double mean : values(ops::mean(out, 1))) EXPECT_NEAR(mean, 0, 1e-5);
    for (const double variance : values(ops::var(out, IntList{1}, 0)))
      EXPECT_NEAR(variance, 1, 1e-4);
    EXPECT_THROW(ops::layer_norm(a, {4}), InvalidArgument);
    EXPECT_THROW(ops::layer_norm(a, {50}, empty({49}, dtype)), InvalidArgument);
  }
}

TEST(NormTest, PlanesOfAChannelAreScaledAsTheBroadcastIs) {
  Random random(47);
  const Tensor a = contiguous(random_floats(random, {3, 6, 5, 7}, DType::kF64));
  const Tensor weight = random_floats(random, {6}, DType::kF64);
  const Tensor bias = random_floats(random, {6}, DType::kF64);
  const Tensor one = ops::group_norm(a, 2, weight, bias);
  const Tensor rows = a.view({3, 2, -1});
  const Tensor centred = ops::sub(rows, ops::mean(rows, {2}, true));
  const Tensor spread = ops::rsqrt(ops::add(ops::var(rows, {2}, 0, true), 1e-5));
  const Tensor by_hand = ops::add(
      ops::mul(ops::mul(centred, spread).view(a.sizes()), weight.view({1, 6, 1, 1})),
      bias.view({1, 6, 1, 1}));
  const Tensor eval = ops::batch_norm(a, bias, ops::square(weight), weight, bias);
  const Tensor scale = ops::mul(weight, ops::rsqrt(ops::add(ops::square(weight), 1e-5)));
  const Tensor shift = ops::sub(bias, ops::mul(bias, scale));
  const Tensor scaled =
      ops::add(ops::mul(a, scale.view({1, 6, 1, 1})), shift.view({1, 6, 1, 1}));
  for (const auto& [got, wanted] : {std::pair(one, by_hand), std::pair(eval, scaled)})
    for (std::size_t i = 0; i < values(got).size(); ++i)
      ASSERT_NEAR(values(got)[i], values(wanted)[i], 1e-12) << i;
}

TEST(NormTest, BatchNormKeepsRunningStatistics) {
  const Tensor a = tensor<float>({1, 10, 3, 30}, {2, 2});
  const Tensor mean = zeros({2}), var = ones({2});
  const Tensor out = ops::batch_norm(a, mean, var, {}, {}, true, 0.5, 0);
  EXPECT_EQ(values(out), (std::vector<double>{-1, -1, 1, 1}));
  EXPECT_EQ(values(mean), (std::vector<double>{1, 10}));
  EXPECT_EQ(values(var), (std::vector<double>{1.5, 100.5}));
  EXPECT_THROW(ops::batch_norm(a, {}, {}), InvalidArgument);
}

TEST(AttentionTest, MasksAndCausalityHideKeys) {
  Random random(9);
  const Tensor q = random_floats(random, {2, 4, 8}, DType::kF64);
  const Tensor mask = ops::tril(full({4, 4}, true, DType::kBool));
  const Tensor causal = ops::scaled_dot_product_attention(q, q, q, {}, true);
  const Tensor masked = ops::scaled_dot_product_attention(q, q, q, mask);
  const Tensor shown =
      ops::masked_fill(zeros({4, 4}, DType::kF64), ops::logical_not(mask), -INFINITY);
  const Tensor added = ops::scaled_dot_product_attention(q, q, q, shown);
  for (std::size_t i = 0; i < values(causal).size(); ++i) {
    EXPECT_NEAR(values(causal)[i], values(masked)[i], 1e-12);
    EXPECT_NEAR(values(causal)[i], values(added)[i], 1e-12);
  }
  for (std::int64_t d = 0; d < 8; ++d)  // the first query sees the first key alone
    EXPECT_NEAR(element(causal, {1, 0, d}), element(q, {1, 0, d}), 1e-12);
  EXPECT_THROW(ops::scaled_dot_product_attention(q, q, q, mask, true), InvalidArgument);
  EXPECT_THROW(ops::scaled_dot_product_attention(q, empty({2, 4, 7}, DType::kF64), q),
               InvalidArgument);
}

}  // namespace
}  // namespace tenon
