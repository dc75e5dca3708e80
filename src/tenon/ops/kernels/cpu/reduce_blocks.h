// The host's reductions of dense blocks.
#pragma once

#include <complex>
#include <cstdint>

#include "tenon/ops/reduce.h"
#include "tenon/tensor/dtype.h"

namespace tenon::ops::cpu {

// Elements come as f32, f64, integers of their size (bool as u8) or c128, those of sums also as
// 16-bit floats (`reduce_input`). They gather in f64, i64 or c128 (`reduce_accumulator`): sums of
// f32 do not lose digits. What is rare takes only the dtype that it gathers in.
constexpr DType reduce_input(Gather gather, DType dtype) {
  const bool is_half = dtype == DType::kBF16 || dtype == DType::kF16;
  if (is_complex(dtype)) return DType::kC128;
  if (dtype == DType::kF64 || (is_floating(dtype) && gather == Gather::kSumOfExponentials))
    return DType::kF64;
  if (is_floating(dtype)) return gather == Gather::kSum && is_half ? dtype : DType::kF32;
  if (gather == Gather::kProduct) return DType::kI64;
  return dtype == DType::kBool ? DType::kU8 : dtype;
}
constexpr DType reduce_accumulator(DType dtype) {
  if (is_complex(dtype)) return DType::kC128;
  return is_floating(dtype) ? DType::kF64 : DType::kI64;
}

struct ReduceBlocks {
  // One accumulator takes in `count` elements of each of some rows, which are `row_elements` apart.
  // `shift`: what is subtracted, where that is asked for.
  void (*row)(void* accumulator, const void* block, std::int64_t count, double shift,
              std::int64_t rows, std::int64_t row_elements) = nullptr;
  // `rows` accumulators take in a row of `count` elements each; rows are `row_elements` apart.
  void (*each_row)(void* accumulators, const void* block, std::int64_t count, const double* shifts,
                   std::int64_t rows, std::int64_t row_elements) = nullptr;
  // The same of short rows that lie one after the other.
  void (*short_rows)(void* accumulators, const void* block, std::int64_t length,
                     const double* shifts, std::int64_t rows) = nullptr;
  // `count` accumulators take in one element each of every row; rows are `row_elements` apart.
  void (*columns)(void* accumulators, const void* block, std::int64_t count, const double* shifts,
                  std::int64_t rows, std::int64_t row_elements) = nullptr;
  // One accumulator takes in another.
  void (*combine)(void* accumulator, const void* other) = nullptr;
  // Writes the accumulator of no elements.
  void (*start)(void* accumulator) = nullptr;
};

// Null functions where the reduction does not exist for that dtype: extremes of complex numbers,
// squares and exponentials of all but floating-point ones. Requires: a dtype of `reduce_input`.
ReduceBlocks reduce_blocks(Gather gather, DType input);

}  // namespace tenon::ops::cpu
