// Where the extreme of a dense row is, on the host.
#pragma once

#include <cstdint>

#include "tenon/tensor/dtype.h"

namespace tenon::ops::cpu {

// Gives the place of the largest (the smallest) of `count` elements, the first of equal ones; that
// of the first NaN if there is one. Requires: count >= 1.
using ArgExtreme = std::int64_t (*)(const void* row, std::int64_t count);

// Null for complex numbers.
ArgExtreme arg_extreme(bool largest, DType dtype);

}  // namespace tenon::ops::cpu
