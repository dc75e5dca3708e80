// The host's element-wise arithmetic, for the best instruction set that the machine has.
#pragma once

#include "tenon/ops/binary.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/unary.h"

namespace tenon::ops::cpu {

// The function for operands of `compute`, or null where the operator does not exist for that dtype.
// Chosen at run time among the instruction sets it was compiled for. Of 16-bit floats there are
// only functions of what costs little, on some machines; others are computed in f32.
BlockFunction binary_block(Binary kind, DType compute);
// The same where the first, or the second, operand is one element for all, which comes first and is
// f32 for 16-bit floats: of what costs little, and null for others.
std::array<BlockFunction, 2> binary_singles(Binary kind, DType compute);
// The first operand to a power that all elements share, for floating point: 1, 2, 3, -1, -2 and the
// square root. Null for others.
BlockFunction power_block(double exponent, DType compute);
BlockFunction unary_block(Unary kind, DType compute);

}  // namespace tenon::ops::cpu
