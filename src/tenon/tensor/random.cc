#include "tenon/tensor/random.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/defined.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/host_access.h"
#include "tenon/tensor/kernels/vulkan/elements.h"
#include "tenon/tensor/kernels/vulkan/random_numbers.h"

namespace tenon {
namespace {

using Four = std::array<std::uint32_t, 4>;

// Uniform in [0, 1) with all bits that a double (53) or a float (24) holds.
double to_unit64(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = (static_cast<std::uint64_t>(high) << 32) | low;
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

// Two numbers for each counter.
std::uint64_t counters(std::int64_t numbers) {
  return static_cast<std::uint64_t>((numbers + 1) / 2);
}

// make(four, out) writes them; element i comes from counter
// start + i / 2 whatever the threads.
template <typename T, typename Make>
void generate(T* out, std::int64_t count, std::uint64_t seed, std::uint64_t start, Make&& make) {
  const std::int64_t pairs = (count + 1) / 2;
  const std::array<std::uint32_t, 2> key = {static_cast<std::uint32_t>(seed),
                                            static_cast<std::uint32_t>(seed >> 32)};
  parallel_for(0, pairs, 8192, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::uint64_t at = start + static_cast<std::uint64_t>(i);
      const Four four = philox4x32(
          {static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32), 0, 0}, key);
      T two[2];
      make(four, two);
      out[2 * i] = two[0];
      if (2 * i + 1 < count) out[2 * i + 1] = two[1];
    }
  });
}

using vulkan::RandomKind;

// Fills a tensor of any geometry by way of a contiguous one, on the host by make(four, two).
template <typename Make>
const Tensor& fill_random(const Tensor& target, Generator& generator, RandomKind kind,
                          double first, double second, Make&& make) {
  const Device device = target.device();
  if (!has_operators(device) && !target.is_meta())
    throw InvalidArgument(
        fmt::format("random numbers are made on the cpu, not on {}", to_string(device)));
  const std::uint64_t start = generator.take(counters(target.numel()));
  if (target.is_meta() || target.numel() == 0) return target;
  const Tensor dense =
      target.is_contiguous() ? target : empty(target.sizes(), target.dtype(), device);
  if (!vulkan::holds(target) ||
      !vulkan::random_numbers(kind, first, second, dense, generator, start)) {
    HostTurn host;
    if (vulkan::holds(target)) host.take("random numbers", device);
    visit_dtype(target.dtype(), [&]<typename T>() {
      generate(dense.data_ptr<T>(), dense.numel(), generator.seed(), start,
               [&](const Four& four, T* two) {
                 double values[2];
                 make(four, values);
                 two[0] = convert_element<T>(values[0]);
                 two[1] = convert_element<T>(values[1]);
               });
    });
  }
  if (!dense.is_same(target)) return copy_(target, dense);
  target.impl()->bump_version();
  return target;
}

void check_real(const Tensor& target, const char* what) {
  detail::check_defined(what, target);
  if (!is_floating(target.dtype()))
    throw InvalidArgument(fmt::format("{}: into {}; take a real floating-point dtype", what,
                                      dtype_name(target.dtype())));
}

// Below one after rounding to the target's dtype, too.
double below_one(double value, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return std::floor(value * 0x1.0p24) * 0x1.0p-24;
    case DType::kF16:
      return std::floor(value * 0x1.0p11) * 0x1.0p-11;
    case DType::kBF16:
      return std::floor(value * 0x1.0p8) * 0x1.0p-8;
    default:
      return value;
  }
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> c,
                                        std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = static_cast<std::uint64_t>(c[0]) * 0xD2511F53u;
    const std::uint64_t b = static_cast<std::uint64_t>(c[2]) * 0xCD9E8D57u;
    c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return c;
}

Generator& default_generator() {
  static Generator& generator = *new Generator;
  return generator;
}

const Tensor& uniform_(const Tensor& target, double low, double high, Generator& generator) {
  check_real(target, "uniform_");
  const DType dtype = target.dtype();
  const auto make = [=](const Four& four, double* two) {
    two[0] = low + (high - low) * below_one(to_unit64(four[0], four[1]), dtype);
    two[1] = low + (high - low) * below_one(to_unit64(four[2], four[3]), dtype);
  };
  return fill_random(target, generator, RandomKind::kUniform, low, high, make);
}

const Tensor& normal_(const Tensor& target, double mean, double deviation, Generator& generator) {
  check_real(target, "normal_");
  const auto make = [=](const Four& four, double* two) {
    const double radius =
        deviation * std::sqrt(-2 * std::log(1 - to_unit64(four[0], four[1])));  // never log(0)
    const double angle = 2 * std::numbers::pi * to_unit64(four[2], four[3]);
    two[0] = mean + radius * std::cos(angle);
    two[1] = mean + radius * std::sin(angle);
  };
  return fill_random(target, generator, RandomKind::kNormal, mean, deviation, make);
}

const Tensor& bernoulli_(const Tensor& target, double probability, Generator& generator) {
  detail::check_defined("bernoulli_", target);
  if (!(probability >= 0 && probability <= 1))
    throw InvalidArgument(fmt::format("bernoulli_: {} is no probability", probability));
  const auto make = [=](const Four& four, double* two) {
    two[0] = to_unit64(four[0], four[1]) < probability ? 1 : 0;
    two[1] = to_unit64(four[2], four[3]) < probability ? 1 : 0;
  };
  return fill_random(target, generator, RandomKind::kBernoulli, probability, 0, make);
}

Tensor rand(IntList sizes, DType dtype, Generator& generator) {
  return uniform_(empty(sizes, dtype), 0, 1, generator);
}

Tensor randn(IntList sizes, DType dtype, Generator& generator) {
  return normal_(empty(sizes, dtype), 0, 1, generator);
}

Tensor randint(std::int64_t low, std::int64_t high, IntList sizes, DType dtype,
               Generator& generator) {
  if (low >= high)
    throw InvalidArgument(fmt::format("randint: nothing lies in [{}, {})", low, high));
  const auto range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  Tensor whole = empty(sizes, DType::kI64);
  if (whole.numel() > 0)
    generate(whole.data_ptr<std::int64_t>(), whole.numel(), generator.seed(),
             generator.take(counters(whole.numel())),
             [=](const Four& four, std::int64_t* two) {
               for (std::size_t i = 0; i < 2; ++i) {
                 const std::uint64_t bits =
                     (static_cast<std::uint64_t>(four[2 * i]) << 32) | four[2 * i + 1];
                 const auto scaled = static_cast<std::uint64_t>(
                     (static_cast<unsigned __int128>(bits) * range) >> 64);
                 two[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + scaled);
               }
             });
  return to(whole, dtype);
}

Tensor randperm(std::int64_t n, Generator& generator) {
  Tensor order = arange(n);
  if (n < 2) return order;
  const Tensor draws = randint(0, INT64_MAX, {n}, DType::kI64, generator);
  std::int64_t* at = order.data_ptr<std::int64_t>();
  const std::int64_t* draw = draws.const_data_ptr<std::int64_t>();
  for (std::int64_t i = n - 1; i > 0; --i) {  // Fisher and Yates
    const auto j = static_cast<std::int64_t>(
        (static_cast<unsigned __int128>(draw[i]) * static_cast<std::uint64_t>(i + 1)) >> 63);
    std::swap(at[i], at[j]);
  }
  return order;
}

}  // namespace tenon
