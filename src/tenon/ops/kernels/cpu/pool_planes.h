// Pools of planes, on the host.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/tensor/dtype.h"

namespace tenon::ops::cpu {

struct PoolWork {
  // Elements [begin, end) of a row or a column, and how many an average counts.
  struct Span {
    std::int64_t begin, end, count;
  };
  bool is_average;  // else the largest, or a NaN if there is one
  DType dtype;      // f32 or f64
  std::int64_t height, width;       // of a plane
  std::vector<Span> rows, columns;  // that each row and each column of the result looks at
};

// Each plane of `in` gives one of `out`, the planes one after the other. A window is reduced down
// its columns first, then along the row that is left. So windows of k x k take k elements of each
// column once, in vectors, and k sums each.
void pool_planes(const PoolWork& work, void* out, const void* in, std::int64_t planes);

}  // namespace tenon::ops::cpu
