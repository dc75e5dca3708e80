// Products of small matrices of f32 and f64, which are over before a library has begun.
#pragma once

#include <cstdint>

#include "tenon/ops/kernels/cpu/gemm.h"

namespace tenon::ops::cpu {

bool is_small_product(const Products& p);

// gemm() on the calling thread. Requires: is_small_product.
void small_products(const Products& p);

}  // namespace tenon::ops::cpu
