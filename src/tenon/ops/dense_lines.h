// Lines along one dimension through a dense tensor, wherever that dimension lies in memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tenon/base/parallel.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/tensor.h"

namespace tenon::ops {

// A dense tensor seen from one of its dimensions: in memory it is [outer, length, inner], whatever
// the order of its other dimensions, and `inner` is the dimension's stride. With an inner of 1 the
// lines are rows; else they are columns, which lie side by side.
struct DenseLines {
  std::int64_t outer = 0, length = 0, inner = 0;

  // Requires: `t` is non-overlapping and dense, with elements.
  DenseLines(const Tensor& t, std::int64_t dim)
      : length(t.dim() == 0 ? 1 : t.size(dim)), inner(length == 1 ? 1 : t.stride(dim)) {
    outer = t.numel() / (length * inner);
  }

  // How many columns go together: a cache line at least; no more than that two strips of them
  // (what is read and what is written) stay in the second-level cache while they are passed over
  // several times. Half a strip or less at the end goes with the strip before it.
  static constexpr std::int64_t kWidest = 240;
  std::int64_t strip(std::int64_t item_bytes) const {
    const std::int64_t fitting = (std::int64_t{1} << 18) / (2 * item_bytes * length);
    return std::clamp(fitting / 16 * 16, std::int64_t{16}, kWidest / 3 * 2);
  }
  std::int64_t strips(std::int64_t width) const {
    return std::max<std::int64_t>(1, (inner + width / 2 - 1) / width);
  }
  std::int64_t widest(std::int64_t width) const { return std::min(inner, width + width / 2); }

  // Calls body(offset of the first element, number of columns) for all lines, on several threads
  // where they are many. Cut by sizes alone.
  template <typename Body>
  void for_each(std::int64_t item_bytes, Body&& body) const {
    const std::int64_t width = inner == 1 ? 1 : strip(item_bytes), each = strips(width);
    const std::int64_t grain = std::max<std::int64_t>(1, 16384 / (length * width));
    parallel_for(0, outer * each, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t first = i % each * width;
        const bool is_last = i % each == each - 1;
        body(i / each * length * inner + first, is_last ? inner - first : width);
      }
    });
  }
};

// The tensor itself where it is dense, else a contiguous copy.
inline Tensor dense(const Tensor& t) {
  return t.is_non_overlapping_and_dense() ? t : contiguous(t);
}

}  // namespace tenon::ops
