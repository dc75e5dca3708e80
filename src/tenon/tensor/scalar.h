// A number of any kind. A value: thread-safe while no thread writes it. O(1), and nothing throws:
// conversions follow convert_element (dtype.h).
#pragma once

#include <complex>
#include <concepts>
#include <cstdint>

#include "tenon/tensor/dtype.h"

namespace tenon {

// A bool, an integer, a floating-point or a complex number, each kept in its widest form. Converts
// from all C++ numbers, so that functions take 2, 2.5 and true alike.
class Scalar {
 public:
  constexpr Scalar(bool value) : kind_(DType::kBool), integer_(value) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) constexpr Scalar(T value)
      : kind_(DType::kI64), integer_(static_cast<std::int64_t>(value)) {
    if constexpr (std::unsigned_integral<T> && sizeof(T) == 8)
      if (integer_ < 0) kind_ = DType::kU64;
  }
  template <std::floating_point T>
  constexpr Scalar(T value) : kind_(DType::kF64), real_(static_cast<double>(value)) {}
  constexpr Scalar(Half value) : Scalar(static_cast<float>(value)) {}
  constexpr Scalar(BFloat16 value) : Scalar(static_cast<float>(value)) {}
  constexpr Scalar(Float8E4M3 value) : Scalar(static_cast<float>(value)) {}
  constexpr Scalar(Float8E5M2 value) : Scalar(static_cast<float>(value)) {}
  constexpr Scalar(Complex64 value)
      : kind_(DType::kC128), real_(value.real()), imaginary_(value.imag()) {}
  constexpr Scalar(Complex128 value)
      : kind_(DType::kC128), real_(value.real()), imaginary_(value.imag()) {}

  // kBool, kI64, kF64 or kC128; kU64 for integers that no int64 holds.
  constexpr DType dtype() const { return kind_; }

  // The value as a T, converted as elements are.
  template <Element T>
  constexpr T to() const {
    switch (kind_) {
      case DType::kBool:
        return convert_element<T>(integer_ != 0);
      case DType::kI64:
        return convert_element<T>(integer_);
      case DType::kU64:
        return convert_element<T>(static_cast<std::uint64_t>(integer_));
      case DType::kF64:
        return convert_element<T>(real_);
      default:
        return convert_element<T>(Complex128(real_, imaginary_));
    }
  }

 private:
  DType kind_;
  std::int64_t integer_ = 0;
  double real_ = 0;
  double imaginary_ = 0;
};

}  // namespace tenon
