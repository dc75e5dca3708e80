#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "ops/reference.h"
#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/base/random.h"
#include "tenon/memory/adaptors/statistics_adaptor.h"
#include "tenon/memory/registry.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/promotion.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

using testing::values;

void expect_close(double got, double wanted, double tolerance, const std::string& where) {
  if (std::isnan(wanted)) {
    EXPECT_TRUE(std::isnan(got)) << where << ": " << got << " instead of nan";
  } else if (std::isinf(wanted)) {
    EXPECT_EQ(got, wanted) << where;
  } else {
    EXPECT_LE(std::abs(got - wanted), tolerance * std::max(1.0, std::abs(wanted)))
        << where << ": " << got << " instead of " << wanted;
  }
}

struct UnaryCase {
  const char* name;
  Tensor (*function)(const Tensor&);
  double (*reference)(double);
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double sign(double x) { return std::isnan(x) ? x : (x > 0) - (x < 0); }

const std::vector<UnaryCase>& unary_cases() {
  static const std::vector<UnaryCase> cases = {
      {"exp", ops::exp, std::exp},
      {"expm1", ops::expm1, std::expm1},
      {"log", ops::log, std::log},
      {"log2", ops::log2, std::log2},
      {"log10", ops::log10, std::log10},
      {"log1p", ops::log1p, std::log1p},
      {"sin", ops::sin, std::sin},
      {"cos", ops::cos, std::cos},
      {"tan", ops::tan, std::tan},
      {"tanh", ops::tanh, std::tanh},
      {"atan", ops::atan, std::atan},
      {"sinh", ops::sinh, std::sinh},
      {"erf", ops::erf, std::erf},
      {"sqrt", ops::sqrt, std::sqrt},
      {"rsqrt", ops::rsqrt, [](double x) { return 1 / std::sqrt(x); }},
      {"reciprocal", ops::reciprocal, [](double x) { return 1 / x; }},
      {"sigmoid", ops::sigmoid, sigmoid},
      {"silu", ops::silu, [](double x) { return x * sigmoid(x); }},
      {"abs", ops::abs, std::fabs},
      {"neg", ops::neg, [](double x) { return -x; }},
      {"square", ops::square, [](double x) { return x * x; }},
      {"relu", ops::relu, [](double x) { return x < 0 ? 0 : x; }},
      {"sign", ops::sign, sign},
      {"floor", ops::floor, std::floor},
      {"ceil", ops::ceil, std::ceil},
      {"round", ops::round, std::nearbyint},
      {"trunc", ops::trunc, std::trunc},
      {"gelu", ops::gelu_none,
       [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
  };
  return cases;
}

// Magnitudes from tiny to huge, and all that is special.
std::vector<double> probing_numbers() {
  std::vector<double> numbers = {0,    -0.0,  1,      -1,   0.5,   2.5,   -2.5, 88,   89,    -88,
                                 -104, 1e-30, -1e-30, 1e30, -1e30, 30001, 1e5,  kInf, -kInf, kNan};
  Random random(5);
  for (int i = 0; i < 300; ++i) {
    const double magnitude = std::pow(10.0, static_cast<double>(random.below(9)) - 5);
    const double fraction = static_cast<double>(random.below(100000)) / 50000 - 1;
    numbers.push_back(magnitude * fraction);
  }
  return numbers;
}

TEST(UnaryTest, AgreesWithTheCLibraryEverywhere) {
  const std::vector<double> numbers = probing_numbers();
  const Tensor f64 = tensor<double>(numbers, {static_cast<std::int64_t>(numbers.size())});
  const Tensor f32 = to(f64, DType::kF32);
  for (const UnaryCase& c : unary_cases())
    for (const Tensor& in : {f64, f32}) {
      const std::vector<double> x = values(in);
      const std::vector<double> got = values(c.function(in));
      for (std::size_t i = 0; i < x.size(); ++i) {
        double wanted = c.reference(x[i]);
        const bool single = in.dtype() == DType::kF32;
        if (single) wanted = static_cast<float>(wanted);
        // Near the largest float an ulp in x moves exp(x) by many.
        const double tolerance = single ? 2e-6 : 1e-13;
        if (std::isfinite(wanted) && std::abs(wanted) > 1e30 && std::isfinite(got[i])) {
          EXPECT_NEAR(got[i] / wanted, 1, 1e-5) << c.name << "(" << x[i] << ")";
          continue;
        }
        expect_close(got[i], wanted, tolerance, fmt::format("{}({})", c.name, x[i]));
      }
    }
}

TEST(UnaryTest, ZerosHaveTheValueAndTheSignOfTheCLibrary) {
  const Tensor f64 = tensor<double>(std::vector<double>(32, -0.0), {32});
  for (const UnaryCase& c : unary_cases()) {
    if (c.function == ops::gelu_none) continue;  // +0 for both
    for (const Tensor& zeros : {f64, ops::neg(f64), to(f64, DType::kF32)}) {
      const double x = values(zeros)[0], wanted = c.reference(x);
      const double got = values(c.function(zeros))[0];
      EXPECT_EQ(got, wanted) << c.name << "(" << x << ")";
      EXPECT_EQ(std::signbit(got), std::signbit(wanted)) << c.name << "(" << x << ")";
    }
  }
}

TEST(UnaryTest, ErfIsRightToAFewUnitsInTheLastPlace) {
  const Tensor x = linspace(-6, 6, 120001);
  const Tensor got = ops::erf(x);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double wanted = std::erf(static_cast<double>(x.const_data_ptr<float>()[i]));
    const double error = std::abs(got.const_data_ptr<float>()[i] - wanted);
    ASSERT_LE(error, 3 * 0x1.0p-24 * std::abs(wanted)) << x.const_data_ptr<float>()[i];
  }
}

TEST(UnaryTest, ALaneDoesNotDependOnItsNeighbours) {
  const Tensor plain = linspace(-3, 3, 64);
  const Tensor spoiled = clone(plain);
  spoiled.data_ptr<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  for (const UnaryCase& c : unary_cases()) {
    const Tensor a = c.function(plain), b = c.function(spoiled);
    for (std::int64_t i = 0; i < 64; ++i) {
      if (i == 5 || std::isnan(a.const_data_ptr<float>()[i])) continue;
      EXPECT_EQ(a.const_data_ptr<float>()[i], b.const_data_ptr<float>()[i]) << c.name << i;
    }
  }
}

// A tensor of any geometry with small random values.
Tensor random_tensor(Random& random, IntList sizes, DType dtype) {
  DimVector wide = sizes.to_vector();
  const bool sliced = random.chance(0.4) && !wide.empty();
  if (sliced) wide.back() *= 2;
  const bool swapped = random.chance(0.4) && wide.size() >= 2;
  if (swapped) std::swap(wide[0], wide[wide.size() - 1]);
  Generator generator(random.next());
  Tensor t = randint(is_signed(dtype) ? -9 : 1, 10, wide, dtype, generator);
  if (swapped) t = t.transpose(0, -1);
  if (sliced) t = t.slice(-1, 0, std::nullopt, 2);
  return t;
}

TEST(BinaryTest, EveryGeometryAndDTypeAgreesWithPlainLoops) {
  Random random(21);
  const std::vector<DType> dtypes = {DType::kU8,  DType::kI8,   DType::kI32, DType::kI64,
                                     DType::kF16, DType::kBF16, DType::kF32, DType::kF64};
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    DimVector full_sizes, a_sizes, b_sizes;
    const std::uint64_t ndim = random.below(7);
    for (std::uint64_t d = 0; d < ndim; ++d) {
      const auto size = static_cast<std::int64_t>(random.chance(0.05) ? 0 : random.between(1, 5));
      full_sizes.push_back(size);
      a_sizes.push_back(random.chance(0.25) ? 1 : size);
      b_sizes.push_back(a_sizes.back() == 1 ? size : random.chance(0.25) ? 1 : size);
    }
    if (!b_sizes.empty() && random.chance(0.2) && a_sizes[0] == full_sizes[0]) b_sizes.erase(0);
    const Tensor a = random_tensor(random, a_sizes, dtypes[random.below(dtypes.size())]);
    const Tensor b = random_tensor(random, b_sizes, dtypes[random.below(dtypes.size())]);
    const Tensor sum = ops::add(a, b);
    const Tensor less = ops::lt(a, b);
    ASSERT_EQ(sum.dtype(), result_type(a, b));
    const Tensor wide_a = to(a.expand(sum.sizes()), sum.dtype());
    const Tensor wide_b = to(b.expand(sum.sizes()), sum.dtype());
    const std::vector<double> x = values(wide_a), y = values(wide_b);
    const std::vector<double> got = values(sum), below = values(less);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double wanted = visit_dtype(sum.dtype(), [&]<typename T>() {
        return Scalar(convert_element<T>(x[i] + y[i])).to<double>();
      });
      ASSERT_EQ(got[i], wanted);
      ASSERT_EQ(below[i], x[i] < y[i] ? 1 : 0);
    }
  }
}

TEST(BinaryTest, IntegersDivideRoundAndWrapWithoutTraps) {
  const Tensor a = tensor<std::int32_t>({7, -7, 7, -7, INT32_MIN, 5});
  const Tensor b = tensor<std::int32_t>({2, 2, -2, -2, -1, 0});
  EXPECT_EQ(values(ops::floor_divide(a, b)), (std::vector<double>{3, -4, -4, 3, INT32_MIN, 0}));
  EXPECT_EQ(values(ops::remainder(a, b)), (std::vector<double>{1, 1, -1, -1, 0, 0}));
  EXPECT_EQ(values(ops::fmod(a, b)), (std::vector<double>{1, -1, 1, -1, 0, 0}));
  EXPECT_EQ(ops::div(a, b).dtype(), DType::kF32);
  EXPECT_EQ(
      values(ops::pow(tensor<std::int64_t>({2, -1, 3, 2}), tensor<std::int64_t>({10, -3, 0, -1}))),
      (std::vector<double>{1024, -1, 1, 0}));
  EXPECT_EQ(values(ops::mul(full({1}, 200, DType::kU8), full({1}, 2, DType::kU8)))[0], 144);
}

// a / b rounded down, as integers of T have it: 0 for a division by zero, and wrapped.
template <typename T>
void expect_integer_division() {
  const std::vector<std::int64_t> edges = {std::numeric_limits<T>::min(), -7, -3, -2, -1, 0, 1, 2,
                                           3, 7, std::numeric_limits<T>::max() - 1,
                                           std::numeric_limits<T>::max()};
  std::vector<T> a, b;
  for (const std::int64_t x : edges)
    for (const std::int64_t y : edges)
      for (const std::uint64_t off : {~std::uint64_t{0}, std::uint64_t{0}, std::uint64_t{1}}) {
        a.push_back(static_cast<T>(static_cast<std::uint64_t>(x) + off));  // wraps
        b.push_back(static_cast<T>(y));
      }
  const auto size = static_cast<std::int64_t>(a.size());
  Tensor x = empty({size}, dtype_of<T>()), y = empty({size}, dtype_of<T>());
  std::copy(a.begin(), a.end(), x.data_ptr<T>());
  std::copy(b.begin(), b.end(), y.data_ptr<T>());
  const Tensor quotients = ops::floor_divide(x, y), rests = ops::remainder(x, y);
  const Tensor fmods = ops::fmod(x, y);
  for (std::size_t i = 0; i < a.size(); ++i) {
    using Wide = __int128;
    const Wide n = a[i], d = b[i];
    const Wide cut = d == 0 ? 0 : n / d, rest = d == 0 ? 0 : n % d;
    const bool is_down = rest != 0 && (rest < 0) != (d < 0);
    SCOPED_TRACE(fmt::format("{} by {}", a[i], b[i]));
    EXPECT_EQ(quotients.const_data_ptr<T>()[i], static_cast<T>(cut - (is_down ? 1 : 0)));
    EXPECT_EQ(rests.const_data_ptr<T>()[i], static_cast<T>(is_down ? rest + d : rest));
    EXPECT_EQ(fmods.const_data_ptr<T>()[i], static_cast<T>(rest));
  }
}

TEST(BinaryTest, IntegersOfEverySizeDivideExactly) {
  expect_integer_division<std::uint8_t>();
  expect_integer_division<std::int8_t>();
  expect_integer_division<std::int16_t>();
  expect_integer_division<std::int32_t>();
  expect_integer_division<std::int64_t>();
}

// Quotients next to integers, of numbers that f64 has and of larger ones among them.
TEST(BinaryTest, QuotientsOf64BitsAreExactWhateverTheirNeighbours) {
  std::vector<std::int64_t> as, bs;
  for (const std::int64_t most : {std::int64_t{1} << 52, std::int64_t{1} << 60})
    for (std::int64_t b = 1; b < most / 3; b = 3 * b + 1)
      for (std::int64_t k = 0; k < 67; ++k) {
        const std::int64_t near = (most - 1) / b * b - k % 7 * b;
        const std::int64_t a = near + k % 3 - 1;
        as.push_back(k % 2 == 0 ? a : -a), bs.push_back(k % 5 < 2 ? b : -b);
      }
  const auto count = static_cast<std::int64_t>(as.size());
  const auto of = [&](const std::vector<std::int64_t>& x) {
    return tensor<std::int64_t>(std::span<const std::int64_t>(x), {count});
  };
  const Tensor down = ops::floor_divide(of(as), of(bs)), rest = ops::remainder(of(as), of(bs)),
               left = ops::fmod(of(as), of(bs));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t a = as[at], b = bs[at], r = (a % b + b) % b;
    ASSERT_EQ(rest.const_data_ptr<std::int64_t>()[i], r) << a << " " << b;
    ASSERT_EQ(down.const_data_ptr<std::int64_t>()[i], (a - r) / b) << a << " " << b;
    ASSERT_EQ(left.const_data_ptr<std::int64_t>()[i], a % b) << a << " " << b;
  }
}

TEST(BinaryTest, ASumWithAFactorIsTheSumOfTheProduct) {
  for (const DType d : {DType::kF32, DType::kF64, DType::kBF16, DType::kI64, DType::kI32,
                        DType::kI16, DType::kI8, DType::kU8})
    for (const Scalar& alpha : {Scalar(2), Scalar(-3), Scalar(1000), Scalar(std::int64_t{1} << 40),
                                Scalar(0.1), Scalar(true)})
      for (const DimVector& other :
           {DimVector{40, 70}, DimVector{70}, DimVector{40, 1}, DimVector{}}) {
        const Tensor a = to(ops::mul(randn({40, 70}), 30), d);
        const Tensor b = to(ops::mul(randn(other), 30), d);
        const Tensor sum = ops::add(a, b, alpha), rest = ops::sub(a, b, alpha);
        const Tensor product = ops::mul(b, alpha);
        ASSERT_EQ(sum.dtype(), ops::add(a, product).dtype());
        EXPECT_EQ(values(sum), values(ops::add(a, product))) << dtype_name(d);
        EXPECT_EQ(values(rest), values(ops::sub(a, product))) << dtype_name(d);
      }
}

TEST(BinaryTest, NaNsPassThroughMaximumAndMinimum) {
  const Tensor a = tensor<float>({1, NAN, 3}), b = tensor<float>({NAN, 2, 4});
  for (const Tensor& t : {ops::maximum(a, b), ops::minimum(a, b)}) {
    EXPECT_TRUE(std::isnan(values(t)[0]));
    EXPECT_TRUE(std::isnan(values(t)[1]));
  }
  EXPECT_EQ(values(ops::maximum(a, b))[2], 4);
}

TEST(BinaryTest, WorksInPlaceAndIntoOutputs) {
  const Tensor t = arange(6, DType::kF32).view({2, 3});
  const void* memory = t.const_data_ptr();
  ops::add_(t.t(), 1);
  EXPECT_EQ(values(t), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(t.const_data_ptr(), memory);
  EXPECT_EQ(t.version(), 1u);
  t += t;
  EXPECT_EQ(values(t), (std::vector<double>{2, 4, 6, 8, 10, 12}));
  const Tensor out = empty({3, 2}, DType::kF64).t();
  ops::mul_out(out, t, t);
  EXPECT_EQ(values(out)[5], 144);
  EXPECT_THROW(ops::add_out(empty({2, 3}, DType::kI32), t, t), InvalidArgument);
  EXPECT_THROW(ops::add_out(empty({3, 3}), t, t), InvalidArgument);
  EXPECT_THROW(ops::add_(empty({3}).expand({2, 3}), t), InvalidArgument);
  EXPECT_THROW(ops::add_(empty({3}), t), InvalidArgument);
}

TEST(BinaryTest, AnOutputThatOverlapsAnInputIsRight) {
  const Tensor t = arange(6, DType::kF32);
  ops::add_out(t.slice(0, 1), t.slice(0, 0, 5), full({}, 10));
  EXPECT_EQ(values(t), (std::vector<double>{0, 10, 11, 12, 13, 14}));
  const Tensor square = arange(9, DType::kF32).view({3, 3});
  ops::add_(square, square.t());
  EXPECT_EQ(values(square), (std::vector<double>{0, 4, 8, 4, 8, 12, 8, 12, 16}));
}

TEST(BinaryTest, LazyClonesStayAsTheyWere) {
  const Tensor t = zeros({8});
  const Tensor copy = lazy_clone(t);
  ops::add_(t, 1);
  EXPECT_EQ(values(copy)[0], 0);
  EXPECT_EQ(values(t)[0], 1);
}

TEST(BinaryTest, ShapesThatDoNotBroadcastAreShown) {
  try {
    ops::add(empty({2, 3}), empty({4, 3}));
    FAIL();
  } catch (const InvalidArgument& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("[2, 3]"), std::string::npos) << message;
    EXPECT_NE(message.find("[4, 3]"), std::string::npos) << message;
  }
  EXPECT_THROW(ops::sub(empty({2}, DType::kBool), empty({2}, DType::kBool)), InvalidArgument);
  EXPECT_THROW(ops::lt(empty({2}, DType::kC64), 1), InvalidArgument);
}

TEST(BinaryTest, ResultsComeFromTheCurrentAllocatorAndNothingElseDoes) {
  const Tensor a = ones({32, 32}), b = ones({32, 1}).t().expand({32, 32});
  StatisticsAdaptor<Allocator> counted(*current_allocator(Device{}));
  const AllocatorGuard guard(Device{}, counted);
  const Tensor sum = ops::add(a, b);
  EXPECT_EQ(counted.passed().bytes.current, 4096);
  EXPECT_EQ(counted.passed().bytes.peak, 4096);  // no operand was copied
}

TEST(ElementwiseTest, ATransposedOperandOfAnyItemIsReadAsItsCopyIs) {
  for (const DType dtype : {DType::kU8, DType::kI16, DType::kF32, DType::kF64})
    for (const std::int64_t rows : {32, 45, 130})
      for (const std::int64_t columns : {33, 64, 151}) {
        const Tensor a = to(arange(rows * columns).view({rows, columns}), dtype);
        const Tensor b = to(arange(rows * columns).view({columns, rows}), dtype).t();
        const Tensor copied = clone(b, MemoryFormat::kContiguous);
        EXPECT_EQ(values(ops::sub(a, b)), values(ops::sub(a, copied))) << rows << ' ' << columns;
        EXPECT_EQ(values(ops::sub(b, a)), values(ops::sub(copied, a))) << rows << ' ' << columns;
        for (const DType other : {DType::kBool, DType::kI32, DType::kF64}) {
          const Tensor c = to(a, other), d = to(b, other), e = to(copied, other);
          EXPECT_EQ(values(ops::logical_xor(c, b)), values(ops::logical_xor(c, copied)));
          EXPECT_EQ(values(ops::mul(d, a)), values(ops::mul(e, a))) << rows << ' ' << columns;
        }
      }
}

TEST(ElementwiseTest, ResultsAreTheSameOnAnyNumberOfThreads) {
  const int threads = num_threads();
  const Tensor a = randn({301, 999});
  const Tensor b = randn({999, 301}).t();
  set_num_threads(1);
  const Tensor one = ops::exp(ops::add(a, b));
  set_num_threads(3);
  const Tensor three = ops::exp(ops::add(a, b));
  set_num_threads(threads);
  EXPECT_EQ(std::memcmp(one.const_data_ptr(), three.const_data_ptr(), one.nbytes()), 0);
}

TEST(ElementwiseTest, KeepsTheOrderOfDenseInputs) {
  const Tensor t = randn({4, 5, 6}).permute({2, 0, 1});
  EXPECT_EQ(ops::exp(t).strides(), t.strides());
  EXPECT_EQ(ops::add(t, t).strides(), t.strides());
  EXPECT_TRUE(ops::add(t, contiguous(t)).is_contiguous());
}

TEST(ElementwiseTest, MetaTensorsGiveShapesAlone) {
  const Device meta{DeviceType::kMeta, 0};
  const Tensor a = empty({1 << 20, 1}, DType::kF32, meta);
  const Tensor b = empty({1 << 20}, DType::kI64, meta);
  const Tensor sum = ops::add(a, b);
  EXPECT_EQ(sum.sizes(), (IntList{1 << 20, 1 << 20}));
  EXPECT_TRUE(sum.is_meta());
  EXPECT_EQ(ops::mul(sum, 2.5).dtype(), DType::kF32);
  EXPECT_THROW(ops::add(a, ones({1 << 20})), InvalidArgument);
}

TEST(ElementwiseTest, ClampTakesEitherBoundAndRaisesTheDType) {
  const Tensor t = tensor<float>({-2, 0.5, 3, NAN});
  EXPECT_EQ(values(ops::clamp(t, 0))[0], 0);
  EXPECT_EQ(values(ops::clamp(t, std::nullopt, 1))[2], 1);
  EXPECT_TRUE(std::isnan(values(ops::clamp(t, 0, 1))[3]));
  EXPECT_EQ(ops::clamp(arange(3), 0.5).dtype(), DType::kF32);
  EXPECT_EQ(values(ops::clamp(arange(5), 1, 3)), (std::vector<double>{1, 1, 2, 3, 3}));
  EXPECT_THROW(ops::clamp(t, std::nullopt), InvalidArgument);
  // Bounds beyond the integers of a dtype are the nearest of them.
  const Tensor bytes = tensor<std::uint8_t>({0, 7, 255});
  EXPECT_EQ(values(ops::clamp(bytes, -5, 300)), (std::vector<double>{0, 7, 255}));
  EXPECT_EQ(values(ops::clamp(bytes, 300)), (std::vector<double>{255, 255, 255}));
  EXPECT_EQ(values(ops::clamp(bytes, 5, 9)), (std::vector<double>{5, 7, 9}));
  EXPECT_EQ(values(ops::clamp(bytes, 5, std::int64_t{1} << 60)), (std::vector<double>{5, 7, 255}));
  // A bound that is NaN makes all NaN. Bounds of int64 are exact.
  for (const Tensor& number : {t, bytes}) {
    EXPECT_TRUE(std::isnan(values(ops::clamp(number, NAN, 1))[1]));
    EXPECT_TRUE(std::isnan(values(ops::clamp(number, 0, NAN))[0]));
  }
  constexpr std::int64_t kOdd = (std::int64_t{1} << 60) + 1;
  const Tensor wide = tensor<std::int64_t>({0, kOdd + 5});
  EXPECT_EQ(ops::clamp(wide, 1, kOdd).select(0, 1).item<std::int64_t>(), kOdd);
}

// --- Note [Dispatch]
int traced = 0;

TEST(DispatchTest, KernelsOfHigherKeysComeFirstAndMayCallOn) {
  const Tensor a = ones({2});
  const auto before = ops::op::add.kernel(DispatchKey::kAutograd);
  ops::op::add.set_kernel(DispatchKey::kAutograd, [](const Tensor& x, const Tensor& y) {
    ++traced;
    const ops::KeyGuard below(DispatchKey::kAutograd);
    return ops::op::add(x, y);
  });
  traced = 0;
  EXPECT_EQ(values(a + a)[0], 2);
  EXPECT_EQ(traced, 1);
  {
    const ops::KeyGuard guard(DispatchKey::kAutograd);
    EXPECT_EQ(values(a + a)[0], 2);
  }
  EXPECT_EQ(traced, 1);
  ops::op::add.set_kernel(DispatchKey::kAutograd, before);
  EXPECT_EQ(values(a + a)[0], 2);
  EXPECT_EQ(traced, 1);
}

TEST(DispatchTest, ADeviceOfOnesOwnBringsItsKernels) {
  const Device device{DeviceType::kSim, 0};
  const Tensor there =
      from_blob(DataPtr(reinterpret_cast<void*>(64), device), 8, {2}, {1}, DType::kF32);
  EXPECT_THROW(ops::neg(there), InvalidArgument);
  ops::op::neg.set_kernel(DispatchKey::kSim, [](const Tensor& a) { return a.alias(); });
  EXPECT_TRUE(ops::neg(there).is_alias_of(there));
  ops::op::neg.set_kernel(DispatchKey::kSim, nullptr);
}

TEST(DispatchTest, TracersSeeCallsOfTheirThread) {
  ops::op::mul.set_kernel(DispatchKey::kTracer, [](const Tensor& x, const Tensor& y) {
    ++traced;
    const ops::KeyGuard below(DispatchKey::kTracer);
    return ops::op::mul(x, y);
  });
  traced = 0;
  const Tensor a = ones({2});
  EXPECT_EQ(values(a * a)[0], 1);
  EXPECT_EQ(traced, 0);
  {
    const ops::KeyGuard tracing({}, DispatchKey::kTracer);
    EXPECT_EQ(values(a * a)[0], 1);
  }
  EXPECT_EQ(traced, 1);
  ops::op::mul.set_kernel(DispatchKey::kTracer, nullptr);
}

TEST(ElementwiseTest, AShiftedPartOfTheOutputIsReadBeforeItIsWritten) {
  for (const std::int64_t size : {6, 5000}) {
    const Tensor line = arange(size, DType::kF32);
    ops::add_(line.slice(0, 1, size), line.slice(0, 0, size - 1));
    const std::vector<double> found = values(line);
    EXPECT_EQ(found[0], 0);
    for (std::size_t i = 1; i < found.size(); ++i)
      ASSERT_EQ(found[i], 2 * static_cast<double>(i) - 1) << i;
  }
}

}  // namespace
}  // namespace tenon
