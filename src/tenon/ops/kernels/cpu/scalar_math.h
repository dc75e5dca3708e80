// Functions of one number that the C library does not have.
#pragma once

#include <cmath>
#include <numbers>

namespace tenon::ops::scalar {

inline constexpr double kGeluScale = 0.79788456080286535588;  // sqrt(2 / pi)
inline constexpr double kGeluCubic = 0.044715;

// Without overflow for either sign.
template <typename T>
T sigmoid(T x) {
  if (x >= 0) return 1 / (1 + std::exp(-x));
  const T e = std::exp(x);
  return e / (1 + e);
}

// log(1 + exp(x)) without overflow.
template <typename T>
T log1p_exp(T x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}

template <typename T>
T gelu(T x) {
  return T(0.5) * x * (1 + std::erf(x * static_cast<T>(std::numbers::sqrt2 / 2)));
}

template <typename T>
T gelu_tanh(T x) {
  return T(0.5) * x *
         (1 + std::tanh(static_cast<T>(kGeluScale) * (x + static_cast<T>(kGeluCubic) * x * x * x)));
}

// What fmod leaves, with the divisor's sign.
template <typename T>
T remainder(T a, T b) {
  const T rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// The largest integer that b goes into a, as Python's //: a / b alone may have been rounded up to
// an integer (1 / 0.1 is 10, but 0.1 goes into 1 nine times).
template <typename T>
T floor_quotient(T a, T b) {
  if (b == 0) return a / b;
  const T rest = std::fmod(a, b);
  T quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(T(0), a / b);
  const T whole = std::floor(quotient);
  return quotient - whole > T(0.5) ? whole + 1 : whole;
}

}  // namespace tenon::ops::scalar
