// Softmax and normalisation of dense rows, and of columns, on the host.
#pragma once

#include <cstdint>

#include "tenon/tensor/dtype.h"

namespace tenon::ops::cpu {

// Each of one dtype, f32 or f64. `out` may be `in`.
struct RowFunctions {
  // exp(x - max) / sum, or x - max - log(sum).
  void (*softmax)(void* out, const void* in, std::int64_t count);
  void (*log_softmax)(void* out, const void* in, std::int64_t count);
  // log(sum(exp(x))); of a row with a NaN or +inf that, of nothing but -inf -inf.
  double (*log_sum)(const void* in, std::int64_t count);
  // Mean and mean of squared deviations, in f64.
  void (*moments)(const void* in, std::int64_t count, double* mean, double* variance);
  // Of the squares, in f64.
  double (*mean_square)(const void* in, std::int64_t count);
  // (x - mean) * scale * weight + bias; null weight is 1, null bias 0.
  void (*affine)(void* out, const void* in, std::int64_t count, double mean, double scale,
                 const void* weight, const void* bias);
  // x * scale + shift.
  void (*scale)(void* out, const void* in, std::int64_t count, double scale, double shift);
};
RowFunctions row_functions(DType compute);

// The same down up to DenseLines::kWidest columns side by side: `length` rows, `stride` elements
// from one to the next in both tensors.
struct ColumnFunctions {
  using Function = void (*)(void* out, const void* in, std::int64_t length, std::int64_t stride,
                            std::int64_t count);
  Function softmax;
  Function log_softmax;
  Function log_sum;  // `out` is a row of `count` numbers
};
ColumnFunctions column_functions(DType compute);

}  // namespace tenon::ops::cpu
