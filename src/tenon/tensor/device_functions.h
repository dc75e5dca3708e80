// Which function of elements a device computes, for plans that may run on one.
#pragma once

#include <cstdint>

namespace tenon {

// The numbers are those of tensor/kernels/vulkan/elements.comp. Not listed: functions of two
// operands, whose numbers are those of Binary in ops/binary.h, and of one, which are kUnary and
// those of Unary in ops/unary.h. Derivatives take the gradient and what was saved.
enum class DeviceFunction : std::uint8_t {
  kBinary = 0,
  kMul = 2,
  kDiv = 3,
  kUnary = 32,
  kConvert = 90,  // to another dtype
  kMove = 91,     // elements as they are
  kWhere = 96,
  kReluBackward = 100,
  kTanhBackward,
  kSigmoidBackward,
  kSiluBackward,
  kGeluBackward,
  kGeluTanhBackward,
  kAbsBackward,
  kSquareBackward,
  kClampBackward,
  kSqrtBackward,
  kRsqrtBackward,
  kReciprocalBackward,
  kLeakyReluBackward,
  kHardtanhBackward,
  kHardswishBackward,
  kNone = 255,
};

}  // namespace tenon
