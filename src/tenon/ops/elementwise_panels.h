// Element-wise loops whose rows are short.
#pragma once

#include "tenon/ops/elementwise.h"
#include "tenon/tensor/strided_loop.h"

namespace tenon::ops {

// Runs the plan where rows are too short to be computed by themselves: several go together, as one
// dense block. Operands that are no such block (a column beside rows, every third element) are
// gathered into one. False, and nothing is done, where rows are long.
bool run_panels(const ElementwisePlan& plan, const StridedLoop& loop, const Tensor& out,
                const Tensor* const* inputs);

}  // namespace tenon::ops
