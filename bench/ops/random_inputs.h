// Random tensors: sizes as models have them, dtypes and layouts, all from a seed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/indexing.h"
#include "tenon/tensor/random.h"

namespace tenon::bench {

using DTypes = std::vector<DType>;
inline const DTypes kFloats = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};
inline const DTypes kIntegers = {DType::kI64, DType::kI32, DType::kI16, DType::kI8, DType::kU8};
inline const DTypes kProducts = {DType::kF32, DType::kF32, DType::kF64, DType::kBF16};

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : bits_(seed) { bits_(); }

  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(bits_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(std::int64_t n) { return between(1, n) == 1; }
  template <typename T>
  T pick(const std::vector<T>& from) {
    return from[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(from.size()) - 1))];
  }
  // Log-uniform; half of them are powers of two, as models' sizes are.
  std::int64_t size(std::int64_t low, std::int64_t high) {
    high = std::max(low, high);
    const double part = static_cast<double>(bits_() >> 11) * 0x1p-53;
    const double ratio = static_cast<double>(high + 1) / static_cast<double>(low);
    const auto drawn = static_cast<std::int64_t>(static_cast<double>(low) * std::pow(ratio, part));
    const std::int64_t n = std::clamp(drawn, low, high);
    if (!one_in(2)) return n;
    std::int64_t power = 1;
    while (2 * power <= n) power *= 2;
    return std::max(low, power);
  }
  DType any(bool integers) { return pick(integers && one_in(3) ? kIntegers : kFloats); }

 private:
  std::mt19937_64 bits_;
};

// Floats of `low` to 0.95, integers of 1 to 89. Every function is defined from 0.05 on.
inline Tensor numbers(const std::vector<std::int64_t>& sizes, DType dtype, double low = 0.05) {
  if (dtype == DType::kBool) return ops::gt(rand(sizes), 0.5);
  if (!is_floating(dtype)) return randint(1, 90, sizes, dtype);
  return to(ops::add(ops::mul(rand(sizes), 0.95 - low), low), dtype);
}

// [rows, columns]: dense, transposed, every second column, or the middle of wider rows.
inline Tensor matrix(Dice& d, std::int64_t rows, std::int64_t columns, DType dtype,
                     double low = 0.05) {
  switch (d.between(0, 6)) {
    case 0:
      return numbers({columns, rows}, dtype, low).t();
    case 1:
      return numbers({rows, 2 * columns}, dtype, low).slice(1, 0, 2 * columns, 2);
    case 2:
      return numbers({rows, columns + 3}, dtype, low).narrow(1, 1, columns);
    default:
      return numbers({rows, columns}, dtype, low);
  }
}
inline Tensor matrix(Dice& d, std::int64_t elements, DType dtype, double low = 0.05) {
  const std::int64_t rows = d.size(1, 4000);
  return matrix(d, rows, d.size(2, elements / rows), dtype, low);
}
inline Tensor images(Dice& d, std::int64_t elements, DType dtype) {
  std::int64_t n = d.size(1, 16);
  const std::int64_t channels = d.size(1, 256), side = d.size(4, 112);
  while (n > 1 && n * channels * side * side > elements) n /= 2;
  const std::int64_t kept = std::max<std::int64_t>(1, std::min(channels, elements / side / side));
  const Tensor x = numbers({n, kept, side, side}, dtype);
  return d.one_in(3) ? contiguous(x, MemoryFormat::kChannelsLast) : x;
}

inline constexpr std::int64_t kElements = 400'000;

}  // namespace tenon::bench
