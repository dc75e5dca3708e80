// Dense rows out of elements that lie apart, or of one element, in vectors.
#pragma once

#include <cstdint>

namespace tenon::detail {

// to[i] = from[step i], each of `item` bytes: 1, 2, 4, 8 or 16. In vectors for steps of -1, 0, 2, 3
// and 4. With a step of 0, `to` may be `from`.
void copy_steps(void* to, const void* from, std::int64_t item, std::int64_t step,
                std::int64_t count);

// Rows of `count` items each: to[r to_stride + i item] = from[r from_stride + i step], all strides
// in bytes. Rows that are too short for a call each; a step of `item` copies dense ones.
void copy_rows(char* to, std::int64_t to_stride, const char* from, std::int64_t from_stride,
               std::int64_t item, std::int64_t step, std::int64_t count, std::int64_t rows);

// to[columns i + c] = from[c][i] for two, three or four columns, each of which is dense.
void interleave(void* to, const char* const* from, std::int64_t item, std::int64_t columns,
                std::int64_t count);

// to[r to_stride + c item] = from[c from_stride + r item] for all rows r and columns c: items of 1,
// 2, 4, 8 or 16 bytes, strides in bytes. By squares of vectors of 16 bytes.
void transpose(char* to, std::int64_t to_stride, const char* from, std::int64_t from_stride,
               std::int64_t item, std::int64_t rows, std::int64_t columns);

}  // namespace tenon::detail
