// Losses of pairs of dense elements, for the best instruction set that the machine has.
#pragma once

#include "tenon/ops/elementwise.h"

namespace tenon::ops::cpu {

// (a - b)^2; |a - b|; that of Huber with numbers[0] as delta.
enum class PairLoss : std::uint8_t { kSquared, kAbsolute, kHuber };

struct LossBlocks {
  BlockFunction each;  // the losses
  // Their sum, in f64 over stretches of f32 lanes.
  double (*sum)(const void* const* in, std::int64_t count, const double* numbers);
};
// For f32 and f64.
LossBlocks loss_blocks(PairLoss loss, DType compute);

}  // namespace tenon::ops::cpu
