// Vector forms of functions that the compiler cannot vectorise.
#pragma once

#include "tenon/ops/binary.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/unary.h"

namespace tenon::ops::cpu {

// For f32 and f64; null where there is no vector form.
BlockFunction unary_simd(Unary kind, DType compute);
BlockFunction activation_simd(Unary kind, DType compute);
BlockFunction erf_simd(Unary kind, DType compute);
BlockFunction binary_simd(Binary kind, DType compute);

// g f'(x) of blocks g and x, with the numbers of f: for f32 and f64, and some activation functions.
// The second is that of gelu.
BlockFunction activation_slope(Unary kind, DType compute);
BlockFunction gelu_slope(DType compute);

}  // namespace tenon::ops::cpu
