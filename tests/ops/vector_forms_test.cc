// Functions with vector forms, against the C library over their whole range and at its ends.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "ops/reference.h"
#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/into.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/indexing.h"

namespace tenon {
namespace {

using testing::values;

constexpr double kInfD = std::numeric_limits<double>::infinity();

// Equal, both NaN, or within `ulps` units in the last place of an f32 (an f64).
void expect_near(double got, double wanted, double ulps, bool single, const std::string& what) {
  if (std::isnan(wanted)) {
    EXPECT_TRUE(std::isnan(got)) << what << " is " << got;
    return;
  }
  if (got == wanted) return;
  const double unit = single ? 0x1.0p-24 : 0x1.0p-53;
  EXPECT_LE(std::abs(got - wanted), ulps * unit * std::abs(wanted) + (single ? 1e-44 : 5e-324))
      << what << " is " << got << ", not " << wanted;
}

struct Unary {
  const char* name;
  Tensor (*run)(const Tensor&);
  double (*wanted)(double);
  double low, high, ulps;
};

TEST(VectorForms, OfOneNumberAgreeWithTheCLibrary) {
  const Unary cases[] = {
      {"exp", ops::exp, std::exp, -110, 90, 3},
      {"exp2", ops::exp2, std::exp2, -130, 129, 4},
      {"cosh", ops::cosh, std::cosh, -90, 90, 6},
      {"sinh", ops::sinh, std::sinh, -90, 90, 8},
      {"tan", ops::tan, std::tan, -20, 20, 8},
      {"tanh", ops::tanh, std::tanh, -12, 12, 4},
      {"asin", ops::asin, std::asin, -1.1, 1.1, 6},
      {"acos", ops::acos, std::acos, -1.1, 1.1, 8},
      {"atan", ops::atan, std::atan, -50, 50, 6},
      {"log_sigmoid", ops::log_sigmoid,
       [](double x) { return x > 0 ? -std::log1p(std::exp(-x)) : x - std::log1p(std::exp(x)); },
       -90, 90, 8},
      {"mish", ops::mish, [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }, -60, 60,
       10},
      {"elu", [](const Tensor& x) { return ops::elu(x, 1.5); },
       [](double x) { return x > 0 ? x : 1.5 * std::expm1(x); }, -90, 20, 8},
      {"softplus", [](const Tensor& x) { return ops::softplus(x, 2, 15); },
       [](double x) { return 2 * x > 15 ? x : std::log1p(std::exp(2 * x)) / 2; }, -40, 40, 10},
  };
  for (const Unary& c : cases)
    for (const DType dtype : {DType::kF32, DType::kF64}) {
      const Tensor special = tensor<double>({0, -0.0, kInfD, -kInfD, NAN, 1e300, -1e-300});
      const Tensor x = to(ops::cat({linspace(c.low, c.high, 5001, DType::kF64), special}), dtype);
      const std::vector<double> in = values(x), got = values(c.run(x));
      for (std::size_t i = 0; i < in.size(); ++i) {
        double wanted = c.wanted(in[i]);
        if (dtype == DType::kF32) wanted = static_cast<float>(wanted);
        // Subnormal results have fewer digits.
        if (std::abs(wanted) < (dtype == DType::kF32 ? 1e-37 : 1e-307) && wanted != 0) continue;
        expect_near(got[i], wanted, c.ulps, dtype == DType::kF32,
                    fmt::format("{}({}) in {}", c.name, in[i], dtype_name(dtype)));
      }
    }
}

// Units in the last place of `wanted`, as a T.
template <typename T>
double ulps_between(T got, long double wanted) {
  const T size = std::abs(static_cast<T>(wanted));
  const long double unit =
      static_cast<long double>(std::nextafter(size, std::numeric_limits<T>::infinity())) - size;
  return static_cast<double>(std::abs(static_cast<long double>(got) - wanted) / unit);
}

struct OfErf {
  const char* name;
  Tensor (*run)(const Tensor&);
  long double (*wanted)(long double);
  double low, high, ulps;
};

template <typename T>
void expect_within(const std::vector<OfErf>& cases) {
  for (const OfErf& c : cases) {
    const Tensor x = linspace(c.low, c.high, 100'003, static_cast<DType>(kDTypeOf<T>));
    const Tensor y = c.run(x);
    double worst = 0;
    for (std::int64_t i = 0; i < x.numel(); ++i)
      worst = std::max(worst, ulps_between(y.const_data_ptr<T>()[i],
                                           c.wanted(x.const_data_ptr<T>()[i])));
    EXPECT_LE(worst, c.ulps) << c.name << " from " << c.low << " to " << c.high;
    EXPECT_GT(worst, 0.1) << "no rounding at all: nothing was computed";
  }
}

TEST(VectorForms, LogarithmsAgreeWithLongDouble) {
  for (const double low : {1e-30, 0.4, 0.99})
    expect_within<float>({{"log", ops::log, std::log, low, 2 - low, 1},
                          {"log2", ops::log2, std::log2, low, 2 - low, 2},
                          {"log10", ops::log10, std::log10, low, 2 - low, 2.1}});
}

// Rounded as the processor's instruction rounds, to the last bit.
template <typename T>
void expect_exact_roots(T low, T high) {
  Tensor x = linspace(std::log2(low), std::log2(high), 200'001, static_cast<DType>(kDTypeOf<T>));
  x = ops::exp2(x);
  const Tensor roots = ops::sqrt(x);
  for (std::int64_t i = 0; i < x.numel(); ++i)
    ASSERT_EQ(roots.const_data_ptr<T>()[i], std::sqrt(x.const_data_ptr<T>()[i])) << i;
}

TEST(VectorForms, RootsAreRoundedCorrectly) {
  for (const float reach : {1.0F, 30.0F, 149.0F})
    expect_exact_roots<float>(std::exp2(-reach), std::exp2(std::min(reach, 127.0F)));
  for (const double reach : {1.0, 300.0, 1020.0})
    expect_exact_roots<double>(std::exp2(-reach), std::exp2(reach));
  const std::vector<double> ends = values(ops::sqrt(tensor<double>({0, -0.0, kInfD, -1, NAN, 4})));
  EXPECT_TRUE(ends[0] == 0 && ends[1] == 0 && std::signbit(ends[1]) && ends[2] == kInfD);
  EXPECT_TRUE(std::isnan(ends[3]) && std::isnan(ends[4]) && ends[5] == 2);
}

long double exact_gelu(long double x) {
  return x * std::erfc(-x / std::sqrt(2.0L)) / 2;
}
Tensor gelu_by_erf(const Tensor& x) { return ops::gelu(x); }

TEST(VectorForms, ErfErfcGeluAndTanhAgreeWithLongDouble) {
  expect_within<float>({{"tanh", ops::tanh, std::tanh, -10, 10, 2},
                        {"erf", ops::erf, std::erf, -6, 6, 2.5},
                        {"erfc", ops::erfc, std::erfc, -6, 9, 6},
                        {"gelu", gelu_by_erf, exact_gelu, -1, 40, 6}});
  expect_within<double>({{"tanh", ops::tanh, std::tanh, -20, 20, 2.5},
                         {"erf", ops::erf, std::erf, -7, 7, 2},
                         {"erfc", ops::erfc, std::erfc, -7, 26, 9},
                         {"gelu", gelu_by_erf, exact_gelu, -36, 36, 9}});
  // Below -1 gelu of f32 is right to a part of its argument.
  const Tensor x = linspace(-40, -1, 10'001);
  const std::vector<double> in = values(x), got = values(ops::gelu(x));
  for (std::size_t i = 0; i < in.size(); ++i)
    EXPECT_LE(std::abs(got[i] - static_cast<double>(exact_gelu(in[i]))), 1.5e-7 * -in[i]) << in[i];
}

TEST(VectorForms, ErfErfcAndGeluHoldAtTheEnds) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const Tensor x =
        to(tensor<double>({0, -0.0, kInfD, -kInfD, NAN, 9.5, 12, 26.8, 30, -1000}), dtype);
    const std::vector<double> in = values(x), erf = values(ops::erf(x)),
                              erfc = values(ops::erfc(x));
    for (std::size_t i = 0; i < in.size(); ++i) {
      expect_near(erf[i], std::erf(in[i]), 4, dtype == DType::kF32, "erf");
      const double wanted = dtype == DType::kF32
                                ? static_cast<double>(std::erfc(static_cast<float>(in[i])))
                                : std::erfc(in[i]);
      expect_near(erfc[i], wanted, 4, dtype == DType::kF32, fmt::format("erfc({})", in[i]));
    }
    const std::vector<double> gelu = values(ops::gelu(x));
    EXPECT_EQ(gelu[0], 0);
    EXPECT_EQ(gelu[2], kInfD);
    EXPECT_TRUE(std::isnan(gelu[4]));
    EXPECT_EQ(gelu[8], 30);
    EXPECT_EQ(gelu[9], 0);
  }
}

struct Binary {
  const char* name;
  Tensor (*run)(const Tensor&, const Tensor&);
  std::function<double(float, float)> wanted;
  double ulps;
};

float python_remainder(float a, float b) {
  const float rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
double python_floor_divide(float a, float b) {
  if (b == 0) return a / b;
  const double rest = std::fmod(a, b);
  const double toward_zero = (static_cast<double>(a) - rest) / b;
  const double whole = rest != 0 && (rest < 0) != (b < 0) ? toward_zero - 1 : toward_zero;
  return whole == 0 ? std::copysign(0.0F, a / b) : static_cast<float>(std::round(whole));
}

TEST(VectorForms, OfTwoNumbersAgreeWithTheCLibrary) {
  const Binary cases[] = {
      {"pow", ops::pow, [](float a, float b) { return std::pow(double{a}, double{b}); }, 1.01},
      {"atan2", ops::atan2, [](float a, float b) { return std::atan2(double{a}, double{b}); }, 8},
      {"fmod", ops::fmod, [](float a, float b) { return std::fmod(a, b); }, 0},
      {"remainder", ops::remainder, python_remainder, 0},
      {"floor_divide", ops::floor_divide, python_floor_divide, 0},
  };
  const float kBig = std::numeric_limits<float>::max();
  std::vector<float> numbers = {0,      -0.0F,    1,        -1,   2,      -2,       3,
                                -3,     0.5F,     -0.5F,    0.1F, -0.1F,  10,       -7.5F,
                                1e-40F, 1e30F,    -1e30F,   kBig, 1e-30F, INFINITY, -INFINITY,
                                NAN,    16777216, 33554432, 0.3F, 127,    -126};
  Random random(11);
  for (int i = 0; i < 60; ++i) numbers.push_back(static_cast<float>(random.below(4000)) / 100 - 20);
  const auto n = static_cast<std::int64_t>(numbers.size());
  const Tensor line = tensor<float>(numbers, {n});
  const Tensor a = contiguous(line.unsqueeze(1).expand({n, n})),
               b = contiguous(line.expand({n, n}));
  for (const Binary& c : cases) {
    const Tensor result = c.run(a, b);
    const float* got = result.const_data_ptr<float>();
    for (std::size_t i = 0; i < numbers.size() * numbers.size(); ++i) {
      const float x = a.const_data_ptr<float>()[i], y = b.const_data_ptr<float>()[i];
      const double wanted = static_cast<float>(c.wanted(x, y));
      const std::string what = fmt::format("{}({}, {})", c.name, x, y);
      // Quotients beyond 2^24 are whole anyway; which one is a matter of rounding.
      if (std::string(c.name) == "floor_divide" && !(std::abs(x / y) < 8e6F)) continue;
      expect_near(got[i], wanted, 2 * c.ulps, true, what);
      if (wanted == 0) {
        EXPECT_EQ(std::signbit(got[i]), std::signbit(wanted)) << what;
      }
    }
  }
}

TEST(VectorForms, PowOfF64AgreesWithLongDouble) {
  Random random(13);
  const auto between = [&](double low, double high) {
    return low + (high - low) * static_cast<double>(random.next() >> 11) * 0x1.0p-53;
  };
  std::vector<double> bases, exponents;
  for (int i = 0; i < 30'000; ++i) {
    bases.push_back(i % 3 == 0 ? std::exp2(between(-1000, 1000)) : between(0.5, 2));
    exponents.push_back(i % 3 == 0 ? between(-1, 1) : between(-900, 900));
    if (i % 5 == 0) bases.back() = -bases.back(), exponents.back() = std::round(exponents.back());
  }
  for (const double x : {0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 1e300, 5e-324, kInfD, -kInfD,
                         double{NAN}})
    for (const double y : {0.0, 1.0, -1.0, 3.0, 0.5, 2000.0, -2000.0, kInfD, -kInfD, double{NAN}}) {
      bases.push_back(x);
      exponents.push_back(y);
    }
  const Tensor result = ops::pow(tensor<double>(bases, {static_cast<std::int64_t>(bases.size())}),
                                 tensor<double>(exponents,
                                                {static_cast<std::int64_t>(bases.size())}));
  for (std::size_t i = 0; i < bases.size(); ++i) {
    const double got = result.const_data_ptr<double>()[i];
    const double nearest = std::pow(bases[i], exponents[i]);
    const std::string what = fmt::format("{} ^ {} is {}", bases[i], exponents[i], got);
    if (!std::isfinite(nearest) || std::abs(nearest) < std::numeric_limits<double>::min()) {
      expect_near(got, nearest, 4, false, what);
      continue;
    }
    const long double wanted = std::pow(static_cast<long double>(bases[i]),
                                        static_cast<long double>(exponents[i]));
    EXPECT_LE(ulps_between(got, wanted), 2) << what;
    EXPECT_EQ(std::signbit(got), std::signbit(nearest)) << what;
  }
}

TEST(VectorForms, RestsOfF64AreExact) {
  Random random(17);
  std::vector<double> a, b;
  for (int i = 0; i < 20'000; ++i) {
    const auto any = [&] { return static_cast<double>(random.next() >> 11) * 0x1.0p-53 - 0.5; };
    b.push_back(any() * std::exp2(static_cast<double>(random.below(40)) - 20));
    // Multiples of the divisor, and their neighbours, round up to whole quotients.
    const double multiple = b.back() * static_cast<double>(random.below(1000));
    a.push_back(i % 3 == 0 ? any() * 1000 : i % 3 == 1 ? multiple : std::nextafter(multiple, 0.0));
    if (i % 2 == 0) a.back() = -a.back();
  }
  const auto n = static_cast<std::int64_t>(a.size());
  const Tensor x = tensor<double>(a, {n}), y = tensor<double>(b, {n});
  const std::vector<double> fmod = values(ops::fmod(x, y)), rest = values(ops::remainder(x, y)),
                            whole = values(ops::floor_divide(x, y));
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double left = std::fmod(a[i], b[i]);
    const bool down = left != 0 && (left < 0) != (b[i] < 0);
    EXPECT_EQ(fmod[i], left) << a[i] << " % " << b[i];
    EXPECT_EQ(rest[i], down ? left + b[i] : left) << a[i] << " % " << b[i];
    EXPECT_EQ(whole[i], std::round((a[i] - left) / b[i]) - (down ? 1 : 0)) << a[i] << " / " << b[i];
  }
}

TEST(VectorForms, FloorDivideCountsHowOftenTheDivisorGoesIn) {
  // 1 / 0.1 rounds to 10, but 0.1 is a little more than a tenth.
  EXPECT_EQ(ops::floor_divide(tensor<float>({1}), tensor<float>({0.1F})).item<float>(), 9);
  EXPECT_EQ(ops::floor_divide(tensor<double>({1}), tensor<double>({0.1})).item<double>(), 9);
  EXPECT_EQ(ops::floor_divide(tensor<double>({-7}), tensor<double>({2})).item<double>(), -4);
  EXPECT_EQ(ops::floor_divide(tensor<double>({7}), tensor<double>({0})).item<double>(), kInfD);
}

TEST(VectorForms, APowerSharedByAllIsTheSameProduct) {
  const Tensor x = linspace(-3, 3, 1001);
  const std::vector<double> in = values(x);
  for (const double power : {1.0, 2.0, 3.0, -1.0, -2.0, 0.5, 2.5}) {
    const std::vector<double> got = values(ops::pow(x, power));
    for (std::size_t i = 0; i < in.size(); ++i)
      expect_near(got[i], static_cast<float>(std::pow(in[i], power)), 3, true,
                  fmt::format("{} ^ {}", in[i], power));
  }
  EXPECT_EQ(values(ops::pow(tensor<std::int64_t>({-3, 4}), 2)), (std::vector<double>{9, 16}));
  EXPECT_EQ(ops::pow(arange(3), 0.5).dtype(), DType::kF32);
}

TEST(VectorForms, TheSmallestIntegersStayWhenNegated) {
  EXPECT_EQ(ops::neg(tensor<std::int64_t>({INT64_MIN})).item<std::int64_t>(), INT64_MIN);
  EXPECT_EQ(ops::abs(tensor<std::int32_t>({INT32_MIN})).item<std::int32_t>(), INT32_MIN);
  EXPECT_EQ(values(ops::abs(tensor<std::int8_t>({-128, -5}))), (std::vector<double>{-128, 5}));
}

TEST(VectorForms, SixteenBitFloatsConvertAsTheirElementsDo) {
  std::vector<Half> halves;
  std::vector<BFloat16> brains;
  std::vector<float> floats;
  for (std::uint32_t i = 0; i < 65536; ++i) {
    halves.push_back(Half::from_bits(static_cast<std::uint16_t>(i)));
    brains.push_back(BFloat16::from_bits(static_cast<std::uint16_t>(i)));
    for (const std::uint32_t low : {0u, 0x0fffu, 0x1000u, 0x7fffu, 0x8000u, 0x8001u})
      floats.push_back(std::bit_cast<float>(i << 16 | low));
  }
  const auto check = [](const auto& from, DType dtype, auto convert) {
    using From = typename std::decay_t<decltype(from)>::value_type;
    const auto count = static_cast<std::int64_t>(from.size());
    const Tensor t = to(tensor<From>(std::span<const From>(from), {count}), dtype);
    for (std::size_t i = 0; i < from.size(); ++i) {
      const auto wanted = convert(from[i]);
      const auto got = static_cast<const decltype(wanted)*>(t.const_data_ptr())[i];
      ASSERT_EQ(std::memcmp(&got, &wanted, sizeof wanted), 0) << static_cast<float>(from[i]);
    }
  };
  check(halves, DType::kF32, [](Half x) { return static_cast<float>(x); });
  check(brains, DType::kF32, [](BFloat16 x) { return static_cast<float>(x); });
  check(floats, DType::kF16, [](float x) { return Half(x); });
  check(floats, DType::kBF16, [](float x) { return BFloat16(x); });
  for (std::size_t count = 1; count < 40; ++count) {  // parts of vectors, a NaN among them
    const auto some = [&](const auto& from) {
      auto part = std::vector(from.begin() + 1000, from.begin() + 999 + static_cast<int>(count));
      part.push_back(from.back());
      return part;
    };
    check(some(halves), DType::kF32, [](Half x) { return static_cast<float>(x); });
    check(some(brains), DType::kF32, [](BFloat16 x) { return static_cast<float>(x); });
    check(some(floats), DType::kF16, [](float x) { return Half(x); });
    check(some(floats), DType::kBF16, [](float x) { return BFloat16(x); });
  }
}

// What `run` gives of 16-bit floats, bit by bit: the result in f32 of the same values, rounded. Of
// two NaN the compiler chooses whose sign stays.
template <class F>
void expect_rounded_once(const char* name, const F& run, std::initializer_list<Tensor> in) {
  std::vector<Tensor> halves(in), floats;
  const DType dtype = halves[0].dtype();
  for (const Tensor& t : halves) floats.push_back(to(t, DType::kF32));
  const Tensor got = contiguous(run(halves)).view_dtype(DType::kI16);
  const Tensor wanted = contiguous(to(run(floats), dtype)).view_dtype(DType::kI16);
  ASSERT_EQ(got.sizes().to_vector(), wanted.sizes().to_vector()) << name;
  const int nan = dtype == DType::kF16 ? 0x7e00 : 0x7fc0;
  const auto bits = [&](const Tensor& t, std::int64_t i) {
    const int all = t.const_data_ptr<std::int16_t>()[i];
    return (all & 0x7fff) == nan ? nan : all;
  };
  for (std::int64_t i = 0; i < got.numel(); ++i)
    ASSERT_EQ(bits(got, i), bits(wanted, i))
        << name << " of " << dtype_name(dtype) << ", element " << i << " of " << got.numel();
}

using HalfCase = std::pair<const char*, Tensor (*)(const std::vector<Tensor>&)>;
constexpr HalfCase kUnaryHalves[] = {
    {"square", [](const auto& t) { return ops::square(t[0]); }},
    {"relu", [](const auto& t) { return ops::relu(t[0]); }},
    {"clamp", [](const auto& t) { return ops::clamp(t[0], -0.3, 0.7); }},
    {"floor", [](const auto& t) { return ops::floor(t[0]); }},
    {"ceil", [](const auto& t) { return ops::ceil(t[0]); }},
    {"round", [](const auto& t) { return ops::round(t[0]); }},
    {"trunc", [](const auto& t) { return ops::trunc(t[0]); }},
    {"sqrt", [](const auto& t) { return ops::sqrt(t[0]); }},
    {"rsqrt", [](const auto& t) { return ops::rsqrt(t[0]); }},
    {"reciprocal", [](const auto& t) { return ops::reciprocal(t[0]); }},
    {"leaky_relu", [](const auto& t) { return ops::leaky_relu(t[0], 0.3); }},
    {"hardtanh", [](const auto& t) { return ops::hardtanh(t[0]); }},
    {"hardsigmoid", [](const auto& t) { return ops::hardsigmoid(t[0]); }},
    {"hardswish", [](const auto& t) { return ops::hardswish(t[0]); }},
    {"pow 2", [](const auto& t) { return ops::pow(t[0], 2); }},
    {"pow 3", [](const auto& t) { return ops::pow(t[0], 3); }},
    {"pow -1", [](const auto& t) { return ops::pow(t[0], -1); }},
    {"pow 1/2", [](const auto& t) { return ops::pow(t[0], 0.5); }},
    {"x + 1/3", [](const auto& t) { return ops::add(t[0], 1.0 / 3); }},
    {"x / 1.7", [](const auto& t) { return ops::div(t[0], 1.7); }},
    {"1.7 - x", [](const auto& t) { return ops::sub(1.7, t[0]); }},
    {"0.1 / x", [](const auto& t) { return ops::div(0.1, t[0]); }},
};
constexpr HalfCase kBinaryHalves[] = {
    {"add", [](const auto& t) { return ops::add(t[0], t[1]); }},
    {"sub", [](const auto& t) { return ops::sub(t[0], t[1]); }},
    {"mul", [](const auto& t) { return ops::mul(t[0], t[1]); }},
    {"div", [](const auto& t) { return ops::div(t[0], t[1]); }},
    {"maximum", [](const auto& t) { return ops::maximum(t[0], t[1]); }},
    {"minimum", [](const auto& t) { return ops::minimum(t[0], t[1]); }},
    {"pow", [](const auto& t) { return ops::pow(t[0], t[1]); }},
    {"lt", [](const auto& t) { return to(ops::lt(t[0], t[1]), t[0].dtype()); }},
};

TEST(VectorForms, SixteenBitFloatsAreRoundedOnceFromF32) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const Tensor every = to(arange(0, 65536, 1, DType::kI32), DType::kI16).view_dtype(dtype);
    const Tensor mixed = ops::roll(every, {20011}, {0});
    const auto strided = [&](std::int64_t rows, std::int64_t columns, std::int64_t offset) {
      return every.as_strided({rows, columns}, {977, 3}, offset);
    };
    for (const auto& [name, run] : kUnaryHalves) {
      expect_rounded_once(name, run, {every});
      for (std::int64_t n = 1; n < 70; ++n)
        expect_rounded_once(name, run, {every.slice(0, n, 2 * n)});
      expect_rounded_once(name, run, {strided(40, 5, 11)});
      expect_rounded_once(name, run, {strided(5, 90, 11)});
      expect_rounded_once(name, run, {every.view({256, 256}).t()});
      expect_rounded_once(name, run, {every.slice(0, 0, 1).expand({3, 4})});
      expect_rounded_once(name, run, {every.slice(0, 0, 0)});
    }
    for (const auto& [name, run] : kBinaryHalves) {
      expect_rounded_once(name, run, {every, mixed});
      const Tensor table = every.view({256, 256}), other = mixed.view({256, 256});
      expect_rounded_once(name, run, {table, other.t()});
      expect_rounded_once(name, run, {table.slice(1, 0, 7), other.slice(1, 5, 6)});
      expect_rounded_once(name, run, {table.slice(1, 5, 6), other.slice(1, 9, 131)});
      expect_rounded_once(name, run, {table, other.slice(1, 5, 6)});
      expect_rounded_once(name, run, {table.slice(0, 5, 6), other});
      expect_rounded_once(name, run, {strided(40, 5, 11), table.slice(0, 7, 47).slice(1, 0, 5)});
      expect_rounded_once(name, run, {table, mixed.slice(0, 300, 301).view({1, 1})});
    }
  }
}

// A number beside 16-bit floats has f32's digits, whatever the layout of the others.
TEST(VectorForms, ANumberBesideSixteenBitFloatsIsNotRounded) {
  const double third = 1.0 / 3;
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const Tensor x = to(linspace(-3, 3, 4000, DType::kF32), dtype);
    const Tensor layouts[] = {x, x.view({40, 100}).t(), x.view({40, 100}).slice(1, 3, 8),
                              x.view({40, 100}).slice(1, 0, 99, 2), x.slice(0, 5, 6),
                              x.slice(0, 5, 6).expand({7, 9})};
    for (const Tensor& t : layouts) {
      const Tensor wide = to(t, DType::kF32);
      EXPECT_EQ(values(ops::mul(t, third)), values(to(ops::mul(wide, third), dtype)));
      EXPECT_EQ(values(ops::div(third, t)), values(to(ops::div(third, wide), dtype)));
      Tensor out = zeros({t.dim() == 1 ? 1 : 2 * t.size(0), t.size(-1)}, dtype);
      out = t.dim() == 1 ? out[0] : out.slice(0, 0, 2 * t.size(0), 2);
      ops::into(out, ops::op::sub, t, scalar_tensor(third, DType::kF64));
      EXPECT_EQ(values(out), values(to(ops::sub(wide, third), dtype)));
    }
  }
}

TEST(VectorForms, NumbersBecomeIntegersAsElementsDo) {
  std::vector<double> numbers;
  for (int i = 0; i < 1000; ++i) numbers.push_back((i * 7919 % 1000 - 500) * 0.37);
  int at = 70;  // what no integer holds lies in some stretches
  for (const double x : {2147483647.0, 2147483648.0, -2147483648.0, -2147483649.0, 1e19, -1e300,
                         std::numeric_limits<double>::infinity(), std::nan("")})
    numbers[static_cast<std::size_t>(at += 83)] = x;
  const Tensor wide = tensor<double>(std::span<const double>(numbers), {1000});
  const auto check = [&]<typename From, typename To>(const Tensor& t, From, To) {
    const Tensor got = to(t, dtype_of<To>());
    for (std::int64_t i = 0; i < 1000; ++i) {
      const From x = t.const_data_ptr<From>()[i];
      ASSERT_EQ(got.const_data_ptr<To>()[i], convert_element<To>(x)) << x;
    }
  };
  const Tensor floats = to(wide, DType::kF32);
  check(wide, double(), std::int32_t()), check(floats, float(), std::int32_t());
  check(wide, double(), std::int16_t()), check(floats, float(), std::int16_t());
  check(wide, double(), std::int8_t()), check(floats, float(), std::uint8_t());
}

TEST(DenseLines, SoftmaxAndRunningSumsKeepTheOrderOfDenseInputs) {
  Generator generator(5);
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const Tensor a = ops::mul(randn({5, 300, 7}, dtype, generator), 20);
    copy_(a[{0, Ellipsis(), 3}], full({}, -kInfD, dtype));  // a column of which nothing is left
    copy_(a[{1, 5, 2}], full({}, NAN, dtype));
    for (const auto& run : {&ops::softmax, &ops::log_softmax})
      for (const std::int64_t dim : {0, 1, 2}) {
        // The same by rows: the dimension moved to the end and copied.
        const Tensor rows = run(contiguous(a.movedim(dim, -1)), -1).movedim(-1, dim);
        const Tensor columns = run(a, dim);
        EXPECT_TRUE(columns.is_contiguous());
        const std::vector<double> got = values(columns), wanted = values(rows);
        for (std::size_t i = 0; i < got.size(); ++i) {
          if (std::isnan(wanted[i])) {
            ASSERT_TRUE(std::isnan(got[i])) << i;
            continue;
          }
          if (got[i] == wanted[i]) continue;
          ASSERT_NEAR(got[i], wanted[i], 1e-5 * (1 + std::abs(wanted[i]))) << i << " dim " << dim;
        }
      }
    const Tensor turned = a.transpose(0, 2);
    EXPECT_TRUE(ops::softmax(turned, 0).strides() == turned.strides());
    EXPECT_EQ(values(ops::cumsum(turned, 1)[{2, Ellipsis(), 4}]),
              values(ops::cumsum(contiguous(a[{4, Ellipsis(), 2}]), 0)));
  }
}

TEST(IndexTest, ScalarsTakeOneIndexAndNoMore) {
  const Tensor number = full({}, 3);
  EXPECT_EQ(ops::index_select(number, 0, tensor<std::int64_t>({0})).item<float>(), 3);
  EXPECT_THROW(ops::index_select(number, 0, zeros({4}, DType::kI64)), InvalidArgument);
  EXPECT_THROW(ops::index_add(number, 0, zeros({4}, DType::kI64), full({}, 1)), InvalidArgument);
  EXPECT_THROW(number.size(0), InvalidArgument);
  EXPECT_THROW(number.stride(-1), InvalidArgument);
}

TEST(IndexTest, TheFirstWrongIndexIsNamed) {
  const Tensor index = zeros({200000}, DType::kI64);
  index.data_ptr<std::int64_t>()[150000] = -3;
  index.data_ptr<std::int64_t>()[199999] = 12;
  try {
    ops::index_select(zeros({5, 2}), 0, index);
    FAIL();
  } catch (const InvalidArgument& e) {
    EXPECT_NE(std::string(e.what()).find("index -3 for a dimension of size 5"), std::string::npos);
  }
}

}  // namespace
}  // namespace tenon
