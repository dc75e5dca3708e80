// Products of matrices of bf16 by oneDNN's kernels for blocks of both operands (brgemm).
#pragma once

#include <cstdint>

#include "tenon/ops/kernels/cpu/gemm.h"

namespace tenon::ops::cpu {

// Whether this processor has them for bf16: AVX512_BF16 or AMX.
bool has_onednn_gemm();

// gemm() on the calling thread, of bf16. Copies what has gaps between its rows. The first product
// of a shape, or batch of such, compiles its kernels, which takes some 200 microseconds; oneDNN
// keeps those of 1,024 shapes. Subnormal operands and subnormal products count as zero. Throws
// std::bad_alloc without memory for its copies, and OutOfMemory without that for code. Requires:
// has_onednn_gemm().
void onednn_gemm(const Products& p);

}  // namespace tenon::ops::cpu
