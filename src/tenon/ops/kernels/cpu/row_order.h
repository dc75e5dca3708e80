// The order of a row's elements: increasing or decreasing, NaN the largest of all, equal elements
// in the order of their places. So the result is one, whatever the algorithm.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tenon/tensor/dtype.h"

namespace tenon::ops::cpu {

// Bytes of working memory for rows of that length.
std::size_t row_order_room(std::int64_t length);

// The places of the first `wanted` of a dense row of `length` elements, in order, into `places`.
// `room` is aligned to 64 bytes. Requires: not complex; 1 <= wanted <= length. O(length) for most.
void row_order(DType dtype, const void* row, std::int64_t length, std::int64_t wanted,
               bool descending, std::int64_t* places, char* room);

}  // namespace tenon::ops::cpu
