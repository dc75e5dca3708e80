// Index tensors, for the operators that take them.
#pragma once

#include <cstdint>

#include "tenon/tensor/tensor.h"

namespace tenon::ops {

// Indices as int64 and dense. Throws InvalidArgument unless they are integers.
Tensor integer_indices(const char* what, const Tensor& index);
// The same of one dimension, seen in `sizes` along `dim`. Requires: as many indices as that has.
Tensor along_dim(const char* what, const Tensor& index, IntList sizes, std::int64_t dim);
// Indices as int64, dense and checked: integers in [0, size). Throws InvalidArgument with the first
// that is not. On meta they cannot be seen.
Tensor checked_indices(const char* what, const Tensor& index, std::int64_t size);
// Whether all are in [0, size). By sign bits, which every processor finds for several at once.
inline bool are_indices(const std::int64_t* values, std::int64_t count, std::int64_t size) {
  std::uint64_t signs = 0;
  const auto last = static_cast<std::uint64_t>(size - 1);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<std::uint64_t>(values[i]);
    signs |= value | (last - value);
  }
  return static_cast<std::int64_t>(signs) >= 0;
}
// Throws InvalidArgument for an index of more than one dimension.
void check_index_1d(const char* what, const Tensor& index);

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

}  // namespace tenon::ops
