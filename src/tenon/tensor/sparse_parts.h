// What a sparse tensor is made of; for the files that make them.
#pragma once

#include <vector>

#include "tenon/tensor/extra_meta.h"
#include "tenon/tensor/sparse.h"

namespace tenon::detail {

// COO: `indices` [sparse_dim, nnz]. Compressed layouts: `indices` are the pointers (crow or ccol),
// `plain` the columns or rows.
struct SparseParts final : BackendMeta {
  SparseParts(Tensor its_indices, Tensor its_plain, Tensor its_values, bool is_sorted)
      : indices(std::move(its_indices)),
        plain(std::move(its_plain)),
        values(std::move(its_values)),
        coalesced(is_sorted) {}
  // For detach().
  IntrusivePtr<BackendMeta> clone() const override {
    const Tensor own = values.requires_grad() ? values.detach() : values;
    return make_intrusive<SparseParts>(indices, plain, own, coalesced);
  }

  const Tensor indices;
  const Tensor plain;
  const Tensor values;
  const bool coalesced;
};

// Throws InvalidArgument for a strided tensor; for another layout.
const SparseParts& parts_of(const Tensor& tensor, const char* what);
const SparseParts& parts_of(const Tensor& tensor, Layout layout, const char* what);
Tensor make_sparse(Layout layout, IntList sizes, Tensor indices, Tensor plain, Tensor values,
                   bool coalesced);

// Throws InvalidArgument for a tensor that is not strided: it has no views.
[[noreturn]] void refuse_views(const Tensor& tensor, const char* what);
inline void check_has_views(const Tensor& tensor, const char* what = "view") {
  if (tensor.layout() != Layout::kStrided) [[unlikely]]
    refuse_views(tensor, what);
}

// Indices as dense int64 on the host; values there, too, as many. Throw InvalidArgument.
Tensor as_indices(const Tensor& given, const char* what);
void check_values(const Tensor& values, std::int64_t nnz, const char* what);
Tensor from_vector(const std::vector<std::int64_t>& values);

// --- Compressed layouts (sparse_compressed.cc).
constexpr bool is_compressed(Layout layout) { return layout >= Layout::kSparseCsr; }
constexpr bool is_by_rows(Layout layout) {
  return layout == Layout::kSparseCsr || layout == Layout::kSparseBsr;
}
constexpr bool is_blocked(Layout layout) { return layout >= Layout::kSparseBsr; }
// The height and width of a block: of values [blocks, height, width].
struct BlockSize {
  std::int64_t height = 1, width = 1;
};
BlockSize block_size_of(const Tensor& sparse);
// The matrix as COO, sorted or not; from coalesced COO to a compressed layout.
Tensor expand_compressed(const Tensor& sparse);
Tensor compress(const Tensor& coo, Layout layout, BlockSize block);

}  // namespace tenon::detail
