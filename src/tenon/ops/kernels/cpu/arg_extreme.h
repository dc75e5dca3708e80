// Where the extremes of dense rows are, on the host.
#pragma once

#include <cstdint>

#include "tenon/tensor/dtype.h"

namespace tenon::ops::cpu {

// Writes, for each of some dense rows, the place of the largest (the smallest) of its `count`
// elements, the first of equal ones; that of the first NaN if there is one. Requires: count >= 1.
using ArgExtreme = void (*)(std::int64_t* places, const void* rows, std::int64_t row_count,
                            std::int64_t count);

// Null for complex numbers.
ArgExtreme arg_extreme(bool largest, DType dtype);

}  // namespace tenon::ops::cpu
