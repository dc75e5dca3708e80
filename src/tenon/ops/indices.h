// Index tensors, for the operators that take them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "tenon/base/parallel.h"
#include "tenon/ops/kernels/cpu/index_rows.h"
#include "tenon/tensor/tensor.h"

namespace tenon::ops {

// Indices as int64 and dense. Throws InvalidArgument unless they are integers.
Tensor integer_indices(const char* what, const Tensor& index);
// The same of one dimension, seen in `sizes` along `dim`. Requires: as many indices as that has.
Tensor along_dim(const char* what, const Tensor& index, IntList sizes, std::int64_t dim);
// Indices as int64, dense and checked: integers in [0, size). Throws InvalidArgument with the first
// that is not. On meta they cannot be seen.
Tensor checked_indices(const char* what, const Tensor& index, std::int64_t size);
// out[i] = from[at[i] * step], on several threads. Throws as checked_indices does; `out` may be
// written in part then. Requires: `index` is int64 and dense, as integer_indices gives it.
template <typename T>
void choose_elements(const char* what, T* out, const T* from, const Tensor& index,
                     std::int64_t size, std::int64_t step);
// Throws InvalidArgument for an index of more than one dimension.
void check_index_1d(const char* what, const Tensor& index);

// How many indices are looked at before they are used, while they are in the cache.
inline constexpr std::int64_t kCheckedTogether = 1024;

template <typename T>
void choose_elements(const char* what, T* out, const T* from, const Tensor& index,
                     std::int64_t size, std::int64_t step) {
  const std::int64_t* const indices = index.const_data_ptr<std::int64_t>();
  std::atomic<bool> all_fit{true};
  parallel_for(0, index.numel(), 16384, [&](std::int64_t begin, std::int64_t end) {
    // Copies of their own: a byte that is written might be part of any variable of another's.
    const std::int64_t* const at = indices;
    const T* const source = from;
    T* const target = out;
    const std::int64_t apart = step;
    for (std::int64_t first = begin; first < end; first += kCheckedTogether) {
      const std::int64_t stop = std::min(end, first + kCheckedTogether);
      if (!cpu::are_indices(at + first, stop - first, size))
        return all_fit.store(false, std::memory_order_relaxed);
      if (apart == 1) {
        for (std::int64_t i = first; i < stop; ++i) target[i] = source[at[i]];
      } else {
        for (std::int64_t i = first; i < stop; ++i) target[i] = source[at[i] * apart];
      }
    }
  });
  if (!all_fit) [[unlikely]] static_cast<void>(checked_indices(what, index, size));
}

struct alignas(16) Bytes16 {
  std::uint64_t words[2];
};

// Calls visit(T()) with a type of as many bytes as an element has, for operators that only move it.
template <typename Visit>
void visit_bytes(std::size_t item_bytes, Visit&& visit) {
  switch (item_bytes) {
    case 1:
      return visit(std::uint8_t());
    case 2:
      return visit(std::uint16_t());
    case 4:
      return visit(std::uint32_t());
    case 8:
      return visit(std::uint64_t());
    default:
      return visit(Bytes16());
  }
}

// Sizes around a dimension: [outer, size, inner].
struct Split {
  Split(IntList sizes, std::int64_t dim) {
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      const auto at = static_cast<std::int64_t>(d);
      (at < dim ? outer : at == dim ? size : inner) *= sizes[d];
    }
  }
  std::int64_t outer = 1, size = 1, inner = 1;
};

// The strides of a tensor that is seen as [outer, size, inner] around a dimension.
struct SplitStrides {
  std::int64_t outer = 0, size = 0, inner = 0;
};
// Nothing where the memory has no such view.
inline std::optional<SplitStrides> split_strides(const Tensor& a, const Split& split) {
  std::int64_t strides[3];
  if (!view_strides(a.sizes(), a.strides(), {split.outer, split.size, split.inner}, strides))
    return std::nullopt;
  return SplitStrides{strides[0], strides[1], strides[2]};
}

}  // namespace tenon::ops
