// Element-wise loops over rows that meet one element each.
#pragma once

#include "tenon/ops/elementwise.h"
#include "tenon/tensor/strided_loop.h"

namespace tenon::ops {

// Runs the plan where one of two inputs has one element for each row, the other and the output have
// dense rows, and the plan has a form for that: [r, c] by [r, 1], and outer products. The function
// is called for each row, and nothing else is. False, and nothing done, where that does not apply:
// short rows, dtypes to convert.
bool run_singles(const ElementwisePlan& plan, const StridedLoop& loop, const Tensor& out,
                 const Tensor* const* inputs);

}  // namespace tenon::ops
