// Element-wise loops over operands that run along rows and others that run down columns.
#pragma once

#include "tenon/ops/elementwise.h"
#include "tenon/tensor/strided_loop.h"

namespace tenon::ops {

// Runs the plan tile by tile if the loop has two dimensions and an input runs down its columns (a
// transposed operand): each tile of such an input is transposed into the first-level cache, where
// row by row would fetch a line of memory for every element. False, and nothing done, where that
// does not apply: an output of another dtype, broadcast rows, small loops. `loop` is over the
// output and the inputs.
bool run_tiles(const ElementwisePlan& plan, const StridedLoop& loop, const Tensor& out,
               const Tensor* const* inputs);

}  // namespace tenon::ops
