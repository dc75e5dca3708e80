#include "tenon/distributed/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

#include "tenon/base/check.h"
#include "tenon/distributed/process_group.h"
#include "tenon/tensor/factories.h"

namespace tenon::distributed {
namespace {

constexpr int kMantissa = 52;  // bits of a double
constexpr std::uint64_t kNotFinite = 0x7ff;
constexpr int kBinBits = 32;
constexpr std::int64_t kDigits = 4;  // a bin is sent as digits of 32 bits, whose sums fit an i64

}  // namespace

void SquareSum::add_square(double square) {
  const auto bits = std::bit_cast<std::uint64_t>(square);
  const std::uint64_t exponent = bits >> kMantissa;  // there is no sign
  if (exponent == kNotFinite) {
    finite_ = false;
    return;
  }
  const std::uint64_t fraction = bits & ((1ull << kMantissa) - 1);
  const std::uint64_t whole = exponent == 0 ? fraction : fraction | 1ull << kMantissa;
  const std::uint64_t shift = exponent == 0 ? 0 : exponent - 1;
  bins_[shift / kBinBits] += static_cast<Wide>(whole) << (shift % kBinBits);
}

void SquareSum::add(const Tensor& tensor) {
  const auto add_all = [&](const auto* data) {
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      const double x = std::abs(static_cast<double>(data[i]));
      add_square(std::isnan(x) ? std::numeric_limits<double>::infinity() : x * x);
    }
  };
  TENON_CHECK(tensor.is_contiguous(), "squares of a tensor that is not contiguous");
  if (tensor.dtype() == DType::kF64) return add_all(tensor.const_data_ptr<double>());
  add_all(tensor.const_data_ptr<float>());
}

void SquareSum::reduce(ProcessGroup& group) {
  const Tensor digits = empty({static_cast<std::int64_t>(kBins) * kDigits + 1}, DType::kI64);
  auto* const digit = digits.data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < kBins; ++i)
    for (std::int64_t k = 0; k < kDigits; ++k)
      digit[static_cast<std::int64_t>(i) * kDigits + k] =
          static_cast<std::int64_t>(static_cast<std::uint32_t>(bins_[i] >> (32 * k)));
  digit[digits.numel() - 1] = finite_ ? 0 : 1;
  group.all_reduce(digits);
  for (std::size_t i = 0; i < kBins; ++i) {
    bins_[i] = 0;
    for (std::int64_t k = 0; k < kDigits; ++k)
      bins_[i] += static_cast<Wide>(digit[static_cast<std::int64_t>(i) * kDigits + k]) << (32 * k);
  }
  finite_ = digit[digits.numel() - 1] == 0;
}

double SquareSum::value() const {
  if (!finite_) return std::numeric_limits<double>::infinity();
  // From the smallest, in a fixed order. The lowest bit of the first bin is worth 2^-1074.
  constexpr int kLowest = -1074;
  double sum = 0;
  for (std::size_t i = 0; i < kBins; ++i)
    sum += std::ldexp(static_cast<double>(bins_[i]), static_cast<int>(i) * kBinBits + kLowest);
  return sum;
}

}  // namespace tenon::distributed
