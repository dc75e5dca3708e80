// Vector forms of transcendental functions.
#pragma once

#include "tenon/ops/elementwise.h"
#include "tenon/ops/unary.h"

namespace tenon::ops::cpu {

// For f32 and f64; null where there is no vector form.
BlockFunction unary_simd(Unary kind, DType compute);

}  // namespace tenon::ops::cpu
