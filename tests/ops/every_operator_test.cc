// What holds for every operator, whatever it computes: it takes tensors of any shape and order,
// runs on meta, and gives the same bits on any number of threads.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <set>

#include "ops/reference.h"
#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/memory/host/host_allocator.h"
#include "tenon/memory/scopes/with_scope.h"
#include "tenon/memory/system/system_allocator.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/meta_memory.h"

namespace tenon {
namespace {

using testing::values;
using Function = std::function<Tensor(const Tensor&)>;

struct OperatorCase {
  const char* name;
  Function run;
};

// Another operand of the same shape, on the same device.
Tensor beside(const Tensor& a) { return ops::add(ops::mul(a, 0.5), 0.25); }
Tensor zeros_beside(const Tensor& a, DType dtype) { return to(zeros_like(a), dtype); }
Tensor line(const Tensor& a, std::int64_t count) { return ones({count}, a.dtype(), a.device()); }
std::int64_t last(const Tensor& a) { return a.size(-1); }

std::vector<OperatorCase> elementwise_cases() {
  return {
#define TENON_UNARY(name)                               \
  {                                                     \
#name, [](const Tensor& a) { return ops::name(a); } \
  }
      TENON_UNARY(neg),
      TENON_UNARY(abs),
      TENON_UNARY(sign),
      TENON_UNARY(square),
      TENON_UNARY(relu),
      TENON_UNARY(logical_not),
      TENON_UNARY(bitwise_not),
      TENON_UNARY(floor),
      TENON_UNARY(ceil),
      TENON_UNARY(round),
      TENON_UNARY(trunc),
      TENON_UNARY(exp),
      TENON_UNARY(exp2),
      TENON_UNARY(expm1),
      TENON_UNARY(log),
      TENON_UNARY(log2),
      TENON_UNARY(log10),
      TENON_UNARY(log1p),
      TENON_UNARY(sqrt),
      TENON_UNARY(rsqrt),
      TENON_UNARY(reciprocal),
      TENON_UNARY(sin),
      TENON_UNARY(cos),
      TENON_UNARY(tan),
      TENON_UNARY(asin),
      TENON_UNARY(acos),
      TENON_UNARY(atan),
      TENON_UNARY(sinh),
      TENON_UNARY(cosh),
      TENON_UNARY(tanh),
      TENON_UNARY(erf),
      TENON_UNARY(erfc),
      TENON_UNARY(sigmoid),
      TENON_UNARY(log_sigmoid),
      TENON_UNARY(silu),
      TENON_UNARY(mish),
      TENON_UNARY(hardsigmoid),
      TENON_UNARY(hardswish),
      TENON_UNARY(isnan),
      TENON_UNARY(isinf),
      TENON_UNARY(isfinite),
      TENON_UNARY(gelu_none),
      TENON_UNARY(gelu_tanh),
      TENON_UNARY(leaky_relu),
      TENON_UNARY(elu),
      TENON_UNARY(softplus),
      TENON_UNARY(hardtanh),
#undef TENON_UNARY
      {"clamp", [](const Tensor& a) { return ops::clamp(a, 0.2, 0.6); }},
#define TENON_BINARY(name)                                         \
  {                                                                \
#name, [](const Tensor& a) { return ops::name(a, beside(a)); } \
  }
      TENON_BINARY(add),
      TENON_BINARY(sub),
      TENON_BINARY(mul),
      TENON_BINARY(div),
      TENON_BINARY(maximum),
      TENON_BINARY(minimum),
      TENON_BINARY(pow),
      TENON_BINARY(atan2),
      TENON_BINARY(fmod),
      TENON_BINARY(remainder),
      TENON_BINARY(floor_divide),
      TENON_BINARY(bitwise_and),
      TENON_BINARY(eq),
      TENON_BINARY(ne),
      TENON_BINARY(lt),
      TENON_BINARY(le),
      TENON_BINARY(gt),
      TENON_BINARY(ge),
      TENON_BINARY(logical_and),
      TENON_BINARY(logical_or),
      TENON_BINARY(logical_xor),
#undef TENON_BINARY
      {"pow with a number", [](const Tensor& a) { return ops::pow(a, 2); }},
      {"number to a power", [](const Tensor& a) { return ops::pow(2.5, a); }},
      {"where", [](const Tensor& a) { return ops::where(ops::gt(a, 0.4), a, beside(a)); }},
      {"masked_fill", [](const Tensor& a) { return ops::masked_fill(a, ops::gt(a, 0.4), 2); }},
      {"broadcast", [](const Tensor& a) { return ops::add(a, ops::sum(a, IntList{-1}, true)); }},
  };
}

std::vector<OperatorCase> dimension_cases() {
  std::vector<OperatorCase> cases;
#define TENON_ALONG(name, call)                                                  \
  cases.push_back({#name " first", [](const Tensor& t) { return call(t, 0); }}); \
  cases.push_back({#name " last", [](const Tensor& t) { return call(t, -1); }});
#define TENON_REDUCTION(name)                                                    \
  cases.push_back({#name " all", [](const Tensor& a) { return ops::name(a); }}); \
  TENON_ALONG(name, ops::name)
  TENON_REDUCTION(sum)
  TENON_REDUCTION(mean)
  TENON_REDUCTION(prod)
  TENON_REDUCTION(amax)
  TENON_REDUCTION(amin)
  TENON_REDUCTION(any)
  TENON_REDUCTION(all)
  TENON_REDUCTION(logsumexp)
  TENON_REDUCTION(norm)
  TENON_REDUCTION(argmax)
  TENON_REDUCTION(argmin)
  TENON_ALONG(var, [](const Tensor& a, std::int64_t d) { return ops::var(a, {d}, 0); })
  TENON_ALONG(std, [](const Tensor& a, std::int64_t d) { return ops::std(a, {d}, 0, true); })
  TENON_ALONG(softmax, ops::softmax)
  TENON_ALONG(log_softmax, ops::log_softmax)
  TENON_ALONG(cumsum, ops::cumsum)
  TENON_ALONG(cumprod, ops::cumprod)
  TENON_ALONG(argsort, ops::argsort)
  TENON_ALONG(sort, [](const Tensor& a, std::int64_t d) { return ops::sort(a, d).first; })
  TENON_ALONG(topk, [](const Tensor& a, std::int64_t d) { return ops::topk(a, 2, d).first; })
  TENON_ALONG(flip, [](const Tensor& a, std::int64_t d) { return ops::flip(a, {d}); })
  TENON_ALONG(roll, [](const Tensor& a, std::int64_t d) { return ops::roll(a, {1}, {d}); })
  TENON_ALONG(cat, [](const Tensor& a, std::int64_t d) { return ops::cat({a, beside(a)}, d); })
  TENON_ALONG(stack, [](const Tensor& a, std::int64_t d) { return ops::stack({a, beside(a)}, d); })
  TENON_ALONG(gather, [](const Tensor& a, std::int64_t d) {
    return ops::gather(a, d, zeros_beside(a, DType::kI64));
  })
  TENON_ALONG(scatter_add, [](const Tensor& a, std::int64_t d) {
    return ops::scatter_add(a, d, zeros_beside(a, DType::kI64), a);
  })
  TENON_ALONG(index_select, [](const Tensor& a, std::int64_t d) {
    return ops::index_select(a, d, zeros({a.dim() == 0 ? 1 : 3}, DType::kI64, a.device()));
  })
  TENON_ALONG(index_add, [](const Tensor& a, std::int64_t d) {
    const std::int64_t count = a.dim() == 0 ? 1 : a.size(d);
    return ops::index_add(a, d, zeros({count}, DType::kI64, a.device()), a);
  })
#undef TENON_REDUCTION
#undef TENON_ALONG
  return cases;
}

std::vector<OperatorCase> other_cases() {
  return {
      {"repeat",
       [](const Tensor& a) {
         return ops::repeat(a, DimVector(static_cast<std::size_t>(a.dim()) + 1, 2));
       }},
      {"pad",
       [](const Tensor& a) {
         return ops::pad(a, {1, 2}, 7);
       }},
      {"imag", [](const Tensor& a) { return ops::imag(ops::complex(a, beside(a))); }},
      {"conj", [](const Tensor& a) { return ops::real(ops::conj(ops::complex(a, a))); }},
      {"tril", [](const Tensor& a) { return ops::tril(a); }},
      {"triu", [](const Tensor& a) { return ops::triu(a, 1); }},
      {"one_hot", [](const Tensor& a) { return ops::one_hot(zeros_beside(a, DType::kI64), 3); }},
      {"embedding",
       [](const Tensor& a) {
         return ops::embedding(zeros({2, 2}, DType::kI64, a.device()), a);
       }},
      {"matmul", [](const Tensor& a) { return ops::matmul(a, beside(a).transpose(-1, -2)); }},
      {"bmm", [](const Tensor& a) { return ops::bmm(a, beside(a).transpose(1, 2)); }},
      {"addmm", [](const Tensor& a) { return ops::addmm(a, a, ops::matmul(a.t(), a)); }},
      {"linear",
       [](const Tensor& a) {
         return ops::linear(a, ones({3, last(a)}, a.dtype(), a.device()), line(a, 3));
       }},
      {"outer", [](const Tensor& a) { return ops::outer(a, beside(a)); }},
      {"layer_norm",
       [](const Tensor& a) {
         return ops::layer_norm(a, {last(a)}, line(a, last(a)), line(a, last(a)));
       }},
      {"rms_norm", [](const Tensor& a) { return ops::rms_norm(a, {last(a)}, line(a, last(a))); }},
      {"group_norm", [](const Tensor& a) { return ops::group_norm(a, 1); }},
      {"batch_norm", [](const Tensor& a) { return ops::batch_norm(a, {}, {}, {}, {}, true); }},
      {"max_pool2d", [](const Tensor& a) { return ops::max_pool2d(a, {2}); }},
      {"avg_pool2d", [](const Tensor& a) { return ops::avg_pool2d(a, {2}); }},
      {"adaptive_avg_pool2d", [](const Tensor& a) { return ops::adaptive_avg_pool2d(a, 2); }},
      {"conv2d",
       [](const Tensor& a) {
         return ops::conv2d(a, ones({2, a.size(1), 2, 2}, a.dtype(), a.device()), line(a, 2));
       }},
      {"conv_transpose2d",
       [](const Tensor& a) {
         return ops::conv_transpose2d(a, ones({a.size(1), 2, 2, 2}, a.dtype(), a.device()));
       }},
      {"conv1d",
       [](const Tensor& a) {
         return ops::conv1d(a, ones({2, a.size(1), 2}, a.dtype(), a.device()));
       }},
      {"attention",
       [](const Tensor& a) {
         return ops::scaled_dot_product_attention(a, beside(a), a, {}, true);
       }},
      {"mse_loss", [](const Tensor& a) { return ops::mse_loss(a, beside(a)); }},
      {"l1_loss", [](const Tensor& a) { return ops::l1_loss(a, beside(a)); }},
      {"huber_loss", [](const Tensor& a) { return ops::huber_loss(a, beside(a)); }},
      {"bce", [](const Tensor& a) { return ops::binary_cross_entropy_with_logits(a, a); }},
      {"cross_entropy",
       [](const Tensor& a) { return ops::cross_entropy(a, ops::argmax(a, a.dim() > 1 ? 1 : 0)); }},
      {"nll_loss",
       [](const Tensor& a) { return ops::nll_loss(a, ops::argmax(a, a.dim() > 1 ? 1 : 0)); }},
      {"clone", [](const Tensor& a) { return clone(a); }},
      {"contiguous", [](const Tensor& a) { return contiguous(a); }},
      {"to f64", [](const Tensor& a) { return to(a, DType::kF64); }},
      {"reshape", [](const Tensor& a) { return a.reshape({-1}); }},
  };
}

std::vector<OperatorCase> every_case() {
  std::vector<OperatorCase> all = elementwise_cases();
  for (OperatorCase& c : dimension_cases()) all.push_back(std::move(c));
  for (OperatorCase& c : other_cases()) all.push_back(std::move(c));
  return all;
}

// The same shape in other orders of memory.
std::vector<Tensor> orders_of(const Tensor& a) {
  std::vector<Tensor> all = {a};
  if (a.dim() == 0) return all;
  DimVector wide = a.sizes().to_vector();
  wide.back() *= 2;
  const Tensor gaps = zeros(wide, a.dtype()).slice(-1, 0, INT64_MAX, 2);
  copy_(gaps, a);
  all.push_back(gaps);
  DimVector turned = a.sizes().to_vector();
  std::swap(turned[0], turned.back());
  const Tensor transposed = empty(turned, a.dtype()).transpose(0, -1);
  copy_(transposed, a);
  all.push_back(transposed);
  return all;
}

struct Outcome {
  Tensor result;
  std::string refusal;
};
Outcome attempt(const OperatorCase& c, const Tensor& a) {
  try {
    return {c.run(a), {}};
  } catch (const InvalidArgument& e) {
    return {{}, e.what()};
  }
}

// Values cannot be seen on meta, nor can it be refused there that they are wrong.
bool is_about_values(const Outcome& outcome) {
  return outcome.refusal.find("for a dimension of size 0") != std::string::npos;
}

void expect_alike(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_TRUE(a.sizes() == b.sizes())
      << what << " " << to_string(a.sizes()) << " and " << to_string(b.sizes());
  ASSERT_EQ(a.dtype(), b.dtype()) << what;
  const std::vector<double> left = values(to(a, DType::kF64)), right = values(to(b, DType::kF64));
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (std::isnan(left[i]) && std::isnan(right[i])) continue;
    if (left[i] == right[i]) continue;
    ASSERT_NEAR(left[i], right[i], 1e-5 * (1 + std::abs(right[i]))) << what << " at " << i;
  }
}

constexpr const char* kShapes[] = {"0-d", "empty", "empty inside", "1-d",
                                   "2-d", "3-d",   "4-d",          "6-d"};
Tensor shaped(std::size_t i, DType dtype) {
  const std::vector<std::int64_t> sizes[] = {{},     {0},       {3, 0, 2},    {5},
                                             {4, 6}, {2, 3, 4}, {2, 3, 4, 5}, {2, 1, 3, 2, 2, 3}};
  Generator generator(7 + i);
  const Tensor a = rand(sizes[i], DType::kF32, generator);
  if (is_integral(dtype)) return to(ops::mul(a, 9), dtype);
  return dtype == DType::kBool ? ops::gt(a, 0.5) : to(ops::add(ops::mul(a, 0.8), 0.1), dtype);
}

TEST(EveryOperator, TakesAnyShapeAndOrderAndGivesTheSameOnMeta) {
  std::size_t computed = 0;
  for (const OperatorCase& c : every_case())
    for (std::size_t i = 0; i < std::size(kShapes); ++i) {
      const Tensor a = shaped(i, DType::kF32);
      const Outcome expected = attempt(c, a);
      for (const Tensor& other : orders_of(a)) {
        const std::string what = fmt::format("{} of {}, strides {}: {}", c.name, kShapes[i],
                                             to_string(other.strides()), expected.refusal);
        const Outcome actual = attempt(c, other);
        const Outcome shape = attempt(c, to(other, Device{DeviceType::kMeta}));
        EXPECT_EQ(actual.result.defined(), expected.result.defined()) << what << actual.refusal;
        if (is_about_values(expected)) continue;
        EXPECT_EQ(shape.result.defined(), expected.result.defined()) << what << shape.refusal;
        if (!expected.result.defined() || !actual.result.defined() || !shape.result.defined())
          continue;
        ++computed;
        expect_alike(actual.result, expected.result, what);
        EXPECT_TRUE(shape.result.is_meta()) << what;
        EXPECT_TRUE(shape.result.sizes() == expected.result.sizes()) << what;
        EXPECT_EQ(shape.result.dtype(), expected.result.dtype()) << what;
      }
    }
  EXPECT_GT(computed, 2000u);
}

TEST(EveryOperator, TakesOrRefusesEveryDType) {
  for (const OperatorCase& c : every_case())
    for (const DType dtype : {DType::kBool, DType::kU8, DType::kI64, DType::kF16, DType::kBF16,
                              DType::kF64, DType::kC64, DType::kC128})
      for (const std::size_t i : {std::size_t{0}, std::size_t{3}, std::size_t{4}, std::size_t{6}}) {
        const Tensor a = shaped(i, dtype);
        const Outcome actual = attempt(c, a);
        const Outcome shape = attempt(c, to(a, Device{DeviceType::kMeta}));
        const std::string what = fmt::format("{} of {} {}: {} / {}", c.name, dtype_name(dtype),
                                             kShapes[i], actual.refusal, shape.refusal);
        if (is_about_values(actual)) continue;
        EXPECT_EQ(actual.result.defined(), shape.result.defined()) << what;
        if (!actual.result.defined() || !shape.result.defined()) continue;
        EXPECT_TRUE(shape.result.sizes() == actual.result.sizes()) << what;
        EXPECT_EQ(shape.result.dtype(), actual.result.dtype()) << what;
      }
}

// What is stored and not computed with is refused before a kernel could look for its loop.
TEST(EveryOperator, TakesNoStorageDTypeButToMoveOrCompare) {
  const std::set<std::string> taken = {"cat",  "stack",   "clone",  "contiguous",
                                       "to f64", "reshape", "one_hot"};
  for (const OperatorCase& c : every_case())
    for (const DType dtype : {DType::kU16, DType::kU32, DType::kU64, DType::kF8E4M3,
                              DType::kF8E5M2})
      for (const std::size_t i : {std::size_t{3}, std::size_t{4}, std::size_t{6}}) {
        const Outcome actual = attempt(c, to(shaped(i, DType::kF32), dtype));
        const std::string what = fmt::format("{} of {} {}: {}", c.name, dtype_name(dtype),
                                             kShapes[i], actual.refusal);
        // Real bounds promote integers to floating point.
        const bool promotes = std::string(c.name) == "clamp" && is_wide_unsigned(dtype);
        EXPECT_EQ(actual.result.defined(), taken.contains(c.name) || promotes) << what;
      }
  const Tensor t = to(shaped(4, DType::kF32), DType::kF8E4M3);
  try {
    ops::matmul(t, t.t());
    FAIL() << "matmul took float8";
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(), "matmul: it does not compute with float8_e4m3fn, of shape [4, 6]; cast "
                           "with to(t, dtype) first");
  }
}

TEST(EveryOperator, ComparesStoredValuesExactly) {
  const auto all = [](const Tensor& t) { return ops::all(t).item<bool>(); };
  const Tensor big = full({3}, UINT64_MAX, DType::kU64);
  const Tensor less = full({3}, UINT64_MAX - 1, DType::kU64);  // the same double
  EXPECT_TRUE(all(ops::eq(big, clone(big))) && all(ops::ne(big, less)));
  const Tensor f8 = full({3}, 1.5, DType::kF8E5M2);
  EXPECT_TRUE(all(ops::eq(f8, 1.5)) && all(ops::ne(f8, full({3}, -1.5, DType::kF8E5M2))));
  const Tensor nan = full({3}, NAN, DType::kF8E4M3);
  EXPECT_TRUE(all(ops::ne(nan, nan)));
  EXPECT_TRUE(all(ops::eq(full({3}, 65535, DType::kU16), full({3}, 65535, DType::kF32))));
  EXPECT_THROW(ops::eq(big, full({3}, 1, DType::kI64)), InvalidArgument);
}

// Results and temporaries, on whatever thread: the process's own allocator hears of nothing.
TEST(EveryOperator, TakesAllItsMemoryFromTheScope) {
  HostBackend backend;
  SystemAllocator upstream(backend);
  const auto pool = ScopePool::make(upstream);
  Generator generator(3);
  const Tensor large =
      ops::add(ops::mul(rand({6, 17, 31, 33}, DType::kF32, generator), 0.8), 0.1);
  std::uint64_t served = 0;
  for (const OperatorCase& c : every_case())
    for (const Tensor& a : {shaped(4, DType::kF32), shaped(6, DType::kF32), large,
                            large.transpose(0, 1), to(shaped(6, DType::kF32), DType::kF16)}) {
      static_cast<void>(attempt(c, a));  // what is made once and kept
      const auto allocated = [] { return host_allocator().stats().allocation[0].allocated; };
      const std::int64_t before = allocated();
      with_scope(pool, [&] { static_cast<void>(attempt(c, a)); });
      EXPECT_EQ(allocated(), before) << c.name << " of " << to_string(a.sizes());
      served += pool->last_report().allocations;
    }
  EXPECT_GT(served, 1000u);
}

std::vector<std::int64_t> evaluated(const Tensor& t, std::int64_t n) {
  std::vector<std::int64_t> sizes;
  for (const SymInt& size : t.sym_sizes()) sizes.push_back(size.evaluate({{"n", n}}));
  return sizes;
}

// Shapes and bytes as formulas in one size are those of a run at that size, wherever the guards
// hold. No other size of the shapes has the hint.
TEST(EveryOperator, CarriesSymbolsOrGuardsThem) {
  constexpr std::int64_t kHint = 11;
  std::set<std::string> followed;
  for (const OperatorCase& c : every_case())
    for (const std::vector<std::int64_t>& shape :
         {std::vector<std::int64_t>{5}, {4, 6}, {2, 3, 4}, {2, 3, 4, 5}})
      for (std::size_t d = 0; d < shape.size(); ++d) {
        std::vector<SymInt> sizes(shape.begin(), shape.end());
        sizes[d] = SymInt::symbol("n", kHint);
        const SymGuards guards;
        const MetaMemory memory;
        const Outcome symbolic = attempt(c, empty_symbolic(sizes));
        for (const std::int64_t n : {kHint, kHint + 1, 3 * kHint + 5}) {
          if (!guards.hold({{"n", n}})) continue;
          DimVector plain(shape.data(), shape.size());
          plain[d] = n;
          const MetaMemory real;
          const Outcome actual = attempt(c, empty(plain, DType::kF32, Device{DeviceType::kMeta}));
          const std::string what =
              fmt::format("{} of {} for n of dimension {}: {} / {}", c.name, to_string(plain), d,
                          symbolic.refusal, actual.refusal);
          ASSERT_EQ(symbolic.result.defined(), actual.result.defined()) << what;
          if (!actual.result.defined()) continue;
          ASSERT_TRUE(IntList(evaluated(symbolic.result, n)) == actual.result.sizes()) << what;
          EXPECT_EQ(memory.allocated().evaluate({{"n", n}}), real.allocated().hint()) << what;
          EXPECT_EQ(memory.peak({{"n", n}}), real.peak({})) << what;
          if (n != kHint) followed.insert(c.name);
        }
        EXPECT_TRUE(guards.hold({{"n", kHint}})) << c.name;
      }
  std::string left;
  for (const OperatorCase& c : every_case())
    if (!followed.contains(c.name)) left += fmt::format("{}, ", c.name);
  EXPECT_EQ(left, "bitwise_not, bitwise_and, ")
      << "guarded at the hint in every shape, except for these, which refuse float32";
}

TEST(EveryOperator, GivesTheSameBitsOnAnyNumberOfThreads) {
  const int before = num_threads();
  Generator generator(3);
  const Tensor large[] = {
      ops::add(ops::mul(rand({330, 301}, DType::kF32, generator), 0.8), 0.1),
      ops::add(ops::mul(rand({6, 17, 31, 33}, DType::kF32, generator), 0.8), 0.1)};
  for (const OperatorCase& c : every_case())
    for (const Tensor& base : large)
      for (const Tensor& a : {base, base.transpose(0, 1)}) {
        set_num_threads(1);
        const Outcome one = attempt(c, a);
        set_num_threads(3);
        const Outcome three = attempt(c, a);
        ASSERT_EQ(one.result.defined(), three.result.defined()) << c.name;
        if (!one.result.defined()) continue;
        const Tensor left = contiguous(one.result), right = contiguous(three.result);
        ASSERT_EQ(left.nbytes(), right.nbytes()) << c.name;
        EXPECT_EQ(std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()), 0)
            << c.name << " of " << to_string(a.sizes());
      }
  set_num_threads(before);
}

}  // namespace
}  // namespace tenon
