// Which function of elements a device computes, for plans that may run on one.
#pragma once

#include <cstdint>

namespace tenon::ops {

// The numbers are those of ops/kernels/vulkan/elementwise.comp; from kNeg on, of one operand.
enum class DeviceFunction : std::uint8_t {
  kAdd = 0,
  kSub = 1,
  kMul = 2,
  kDiv = 3,
  kMaximum = 4,
  kMinimum = 5,
  kNeg = 10,
  kAbs = 11,
  kSquare = 12,
  kRelu = 13,
  kClamp = 14,
  kExp = 15,
  kLog = 16,
  kSqrt = 17,
  kRsqrt = 18,
  kReciprocal = 19,
  kTanh = 20,
  kSigmoid = 21,
  kSilu = 22,
  kGelu = 23,
  kGeluTanh = 24,
  kLeakyRelu = 25,
  kNone = 255,
};

}  // namespace tenon::ops
