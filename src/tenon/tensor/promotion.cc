#include "tenon/tensor/promotion.h"

#include <fmt/format.h>

#include <array>
#include <atomic>

#include "tenon/base/error.h"
#include "tenon/tensor/defined.h"
#include "tenon/tensor/scalar.h"
#include "tenon/tensor/tensor.h"

namespace tenon {
namespace {

std::atomic<DType> chosen_default{DType::kF32};

constexpr DType complex_of(DType real) { return real == DType::kF64 ? DType::kC128 : DType::kC64; }

// What the rules say for a pair. The enumeration is ordered by kind and, within a kind, by width
// (u8 before i8, f16 before bf16), so the later of two mostly wins.
constexpr DType promote(DType a, DType b) {
  if (a > b) std::swap(a, b);
  if (a == b) return a;
  if (is_complex(b)) return a == DType::kF64 ? DType::kC128 : b;
  if (a == DType::kU8 && b == DType::kI8) return DType::kI16;
  if (a == DType::kF16 && b == DType::kBF16) return DType::kF32;
  return b;
}

// Of dtypes that are computed with; those for storage have rules of their own.
constexpr int kComputed = static_cast<int>(kLastComputedDType) + 1;
using Table = std::array<std::array<DType, kComputed>, kComputed>;

constexpr Table make_table() {
  Table table{};
  for (int a = 0; a < kComputed; ++a)
    for (int b = 0; b < kComputed; ++b)
      table[a][b] = promote(static_cast<DType>(a), static_cast<DType>(b));
  return table;
}

constexpr Table kTable = make_table();
static_assert(kTable[0][5] == DType::kI64 && kTable[1][2] == DType::kI16);
static_assert(kTable[6][7] == DType::kF32 && kTable[9][10] == DType::kC128);

// PyTorch's: wide unsigned integers promote with floating point alone, 8-bit floats with nothing.
DType promote_stored(DType a, DType b) {
  if (a == b) return a;
  const auto takes = [](DType wide, DType other) {
    return is_wide_unsigned(wide) && is_floating(other) && !is_storage_only(other);
  };
  if (takes(a, b)) return b;
  if (takes(b, a)) return a;
  throw InvalidArgument(
      fmt::format("{} and {} have no common dtype; cast one of them first, with to(t, dtype)",
                  dtype_name(a), dtype_name(b)));
}

int promote_or_first(int held, DType next) {
  return static_cast<int>(held < 0 ? next : promote_types(static_cast<DType>(held), next));
}

// The operands of lower priority change the result only by a higher kind; where they do, a
// floating-point width that is known already is kept.
int combine(int higher, int lower) {
  if (higher < 0) return lower;
  if (lower < 0) return higher;
  const DType high = static_cast<DType>(higher);
  const DType low = static_cast<DType>(lower);
  if (is_complex(high)) return higher;
  if (is_floating(high)) return is_complex(low) ? static_cast<int>(complex_of(high)) : higher;
  if (high == DType::kBool || is_floating(low) || is_complex(low))
    return static_cast<int>(promote_types(high, low));
  return higher;
}

DType dtype_of_wrapped(DType dtype) {
  if (is_complex(dtype)) return complex_of(default_dtype());
  if (dtype == DType::kU64) return DType::kI64;  // a number that no int64 holds is still a number
  return is_floating(dtype) ? default_dtype() : dtype;
}

}  // namespace

DType promote_types(DType a, DType b) {
  if (is_storage_only(a) || is_storage_only(b)) [[unlikely]]
    return promote_stored(a, b);
  return kTable[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)];
}

bool can_cast(DType from, DType to) {
  if (from == DType::kQI8 || to == DType::kQI8) return from == to;
  if (is_complex(from) && !is_complex(to)) return false;
  if (is_floating(from) && (is_integral(to) || to == DType::kBool)) return false;
  return from == DType::kBool || to != DType::kBool;
}

DType default_dtype() { return chosen_default.load(std::memory_order_relaxed); }

void set_default_dtype(DType dtype) {
  if (!is_floating(dtype) || is_storage_only(dtype))
    throw InvalidArgument(
        fmt::format("set_default_dtype: {} is not floating point that is computed with; take "
                    "float16, bfloat16, float32 or float64",
                    dtype_name(dtype)));
  chosen_default.store(dtype, std::memory_order_relaxed);
}

ResultType& ResultType::add(const Tensor& operand) {
  if (operand.is_wrapped_number())
    wrapped_ = promote_or_first(wrapped_, dtype_of_wrapped(operand.dtype()));
  else if (operand.dim() == 0)
    zero_dim_ = promote_or_first(zero_dim_, operand.dtype());
  else
    with_dims_ = promote_or_first(with_dims_, operand.dtype());
  return *this;
}

ResultType& ResultType::add(const Scalar& operand) {
  wrapped_ = promote_or_first(wrapped_, dtype_of_wrapped(operand.dtype()));
  return *this;
}

DType ResultType::get() const {
  const int result = combine(with_dims_, combine(zero_dim_, wrapped_));
  if (result < 0) throw InvalidArgument("result_type: there are no operands");
  return static_cast<DType>(result);
}

DType result_type(const Tensor& a, const Tensor& b) {
  detail::check_defined("result_type", a, b);
  // The common case: nothing to promote.
  if (a.dtype() == b.dtype() && !a.is_wrapped_number() && !b.is_wrapped_number()) return a.dtype();
  return ResultType().add(a).add(b).get();
}

DType result_type(const Tensor& a, const Scalar& b) {
  detail::check_defined("result_type", a);
  return ResultType().add(a).add(b).get();
}

}  // namespace tenon
