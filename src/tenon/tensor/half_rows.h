// Conversions between dense rows of 16-bit floats and of f32, in vectors.
#pragma once

#include <cstdint>

#include "tenon/tensor/half.h"

namespace tenon::detail {

// The same bits as converting element by element, with AVX2, AVX-512 and F16C where the machine has
// them.
void convert_dense(float* to, const BFloat16* from, std::int64_t count);
void convert_dense(BFloat16* to, const float* from, std::int64_t count);
void convert_dense(float* to, const Half* from, std::int64_t count);
void convert_dense(Half* to, const float* from, std::int64_t count);

}  // namespace tenon::detail
