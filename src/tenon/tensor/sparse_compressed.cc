// CSR and CSC, and the same of dense blocks: BSR and BSC. Matrices.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "tenon/base/error.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/defined.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/indexing.h"
#include "tenon/tensor/sparse_parts.h"

namespace tenon {
namespace {

using detail::as_indices;
using detail::BlockSize;
using detail::is_blocked;
using detail::is_by_rows;
using detail::make_sparse;
using detail::parts_of;
using detail::SparseParts;

// How messages name a layout's parts.
struct Words {
  const char* function;
  const char* pointers;
  const char* indices;
  const char* outer;  // what is compressed
  const char* inner;
};
Words words_of(Layout layout) {
  constexpr const char* kFunctions[] = {"sparse_csr_tensor", "sparse_csc_tensor",
                                        "sparse_bsr_tensor", "sparse_bsc_tensor"};
  const std::size_t number =
      static_cast<std::size_t>(layout) - static_cast<std::size_t>(Layout::kSparseCsr);
  return is_by_rows(layout)
             ? Words{kFunctions[number], "crow_indices", "col_indices", "row", "column"}
             : Words{kFunctions[number], "ccol_indices", "row_indices", "column", "row"};
}

// Of the matrix in blocks: how many there are in the compressed dimension, and in the other.
struct Extent {
  std::int64_t outer, inner;
};
Extent extent_of(IntList sizes, Layout layout, BlockSize block) {
  const std::int64_t rows = sizes[0] / block.height, columns = sizes[1] / block.width;
  return is_by_rows(layout) ? Extent{rows, columns} : Extent{columns, rows};
}

// Pointers of ascending numbers.
Tensor pointers_of(const std::int64_t* numbers, std::int64_t count, std::int64_t outer) {
  Tensor pointers = zeros({outer + 1}, DType::kI64);
  auto* pointer = pointers.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) ++pointer[numbers[i] + 1];
  std::partial_sum(pointer, pointer + outer + 1, pointer);
  return pointers;
}

void check_pointers(const Words& words, const Tensor& pointers, std::int64_t outer,
                    std::int64_t nnz) {
  const auto* pointer = pointers.const_data_ptr<std::int64_t>();
  if (pointer[0] != 0 || pointer[outer] != nnz)
    throw InvalidArgument(
        fmt::format("{}: {} go from {} to {}; with {} values they go from 0 to {}", words.function,
                    words.pointers, pointer[0], pointer[outer], nnz, nnz));
  for (std::int64_t r = 0; r < outer; ++r)
    if (pointer[r + 1] < pointer[r])
      throw InvalidArgument(fmt::format("{}: {} fall from {} to {} after {} {}", words.function,
                                        words.pointers, pointer[r], pointer[r + 1], words.outer,
                                        r));
}

void check_indices(const Words& words, const Tensor& pointers, const Tensor& indices,
                   Extent extent, IntList sizes) {
  const auto* pointer = pointers.const_data_ptr<std::int64_t>();
  const auto* index = indices.const_data_ptr<std::int64_t>();
  for (std::int64_t r = 0; r < extent.outer; ++r) {
    std::int64_t before = -1;
    for (std::int64_t i = pointer[r]; i < pointer[r + 1]; before = index[i++])
      if (index[i] <= before || index[i] >= extent.inner)
        throw InvalidArgument(fmt::format(
            "{}: {} {} at {} ({} {}, after {} {}) of shape {}; those of a {} ascend and are in "
            "range",
            words.function, words.inner, index[i], i, words.outer, r, words.inner, before,
            to_string(sizes), words.outer));
  }
}

Tensor make_compressed(Layout layout, const Tensor& pointers, const Tensor& indices,
                       const Tensor& values, IntList sizes) {
  const Words words = words_of(layout);
  detail::check_defined(words.function, pointers, indices, values);
  const Tensor ready = as_indices(pointers, words.function);
  const Tensor plain = as_indices(indices, words.function);
  const bool blocked = is_blocked(layout);
  const bool has_blocks = blocked && values.dim() == 3 && values.size(1) > 0 && values.size(2) > 0;
  const BlockSize block =
      has_blocks ? BlockSize{values.size(1), values.size(2)} : BlockSize{};
  const bool fits = sizes.size() == 2 && ready.dim() == 1 && plain.dim() == 1 &&
                    (blocked ? has_blocks : values.dim() == 1) &&
                    sizes[0] % block.height == 0 && sizes[1] % block.width == 0 &&
                    ready.size(0) == extent_of(sizes, layout, block).outer + 1;
  if (!fits)
    throw InvalidArgument(fmt::format(
        "{}: {} {}, {} {}, values {} for sizes {}; they are [{}s + 1], [nnz], {} and [rows, "
        "columns]{}",
        words.function, words.pointers, to_string(ready.sizes()), words.indices,
        to_string(plain.sizes()), to_string(values.sizes()), to_string(sizes), words.outer,
        blocked ? "[nnz, height, width]" : "[nnz]",
        blocked ? ", which the blocks divide; pointers and indices count blocks" : ""));
  static_cast<void>(checked_numel(sizes));
  const std::int64_t nnz = plain.size(0);
  detail::check_values(values, nnz, words.function);
  const Extent extent = extent_of(sizes, layout, block);
  check_pointers(words, ready, extent.outer, nnz);
  check_indices(words, ready, plain, extent, sizes);
  return make_sparse(layout, sizes, ready, plain, values, true);
}

Tensor to_compressed(const char* what, const Tensor& source, Layout layout, BlockSize block) {
  detail::check_defined(what, source);
  if (source.dim() != 2)
    throw InvalidArgument(
        fmt::format("{}: shape {}; compressed layouts are for matrices, to_sparse_coo() for all",
                    what, to_string(source.sizes())));
  if (block.height < 1 || block.width < 1 || source.size(0) % block.height != 0 ||
      source.size(1) % block.width != 0)
    throw InvalidArgument(fmt::format("{}: blocks of [{}, {}] do not divide shape {}", what,
                                      block.height, block.width, to_string(source.sizes())));
  if (source.layout() == layout) {
    const BlockSize has = detail::block_size_of(source);
    if (has.height == block.height && has.width == block.width) return source;
  }
  const Tensor coo = coalesce(to_sparse_coo(source));
  if (sparse_indices(coo).size(0) != 2)
    throw InvalidArgument(
        fmt::format("{}: rows of the matrix are dense; to_dense() it first", what));
  return detail::compress(coo, layout, block);
}

const SparseParts& compressed_parts(const Tensor& t, bool by_rows, const char* what) {
  const SparseParts& parts = parts_of(t, what);
  if (!detail::is_compressed(t.layout()) || is_by_rows(t.layout()) != by_rows)
    throw InvalidArgument(fmt::format("{}: of {}, this tensor of shape {} is {}", what,
                                      by_rows ? "sparse_csr or sparse_bsr"
                                              : "sparse_csc or sparse_bsc",
                                      to_string(t.sizes()), layout_name(t.layout())));
  return parts;
}

}  // namespace

BlockSize detail::block_size_of(const Tensor& sparse) {
  if (!is_blocked(sparse.layout())) return {};
  const Tensor& values = parts_of(sparse, "block size").values;
  return {values.size(1), values.size(2)};
}

Tensor detail::expand_compressed(const Tensor& sparse) {
  const SparseParts& parts = parts_of(sparse, "to_sparse_coo");
  const BlockSize block = block_size_of(sparse);
  const bool by_rows = is_by_rows(sparse.layout());
  const std::int64_t count = parts.values.numel();
  Tensor indices = empty({2, count}, DType::kI64);
  auto* row = indices.data_ptr<std::int64_t>();
  auto* column = row + count;
  const auto* pointer = parts.indices.const_data_ptr<std::int64_t>();
  const auto* plain = parts.plain.const_data_ptr<std::int64_t>();
  for (std::int64_t outer = 0; outer + 1 < parts.indices.size(0); ++outer)
    for (std::int64_t i = pointer[outer]; i < pointer[outer + 1]; ++i) {
      const std::int64_t top = (by_rows ? outer : plain[i]) * block.height;
      const std::int64_t left = (by_rows ? plain[i] : outer) * block.width;
      for (std::int64_t y = 0; y < block.height; ++y)
        for (std::int64_t x = 0; x < block.width; ++x) {
          *row++ = top + y;
          *column++ = left + x;
        }
    }
  const bool sorted = sparse.layout() == Layout::kSparseCsr || count < 2;
  return make_sparse(Layout::kSparseCoo, sparse.sizes(), indices, Tensor(),
                     parts.values.reshape({count}), sorted);
}

Tensor detail::compress(const Tensor& coo, Layout layout, BlockSize block) {
  const SparseParts& parts = parts_of(coo, "compress");
  const std::int64_t count = parts.indices.size(1);
  const auto* row = parts.indices.const_data_ptr<std::int64_t>();
  const auto* column = row + count;
  if (layout == Layout::kSparseCsr)
    return make_sparse(layout, coo.sizes(), pointers_of(row, count, coo.size(0)),
                       contiguous(parts.indices.select(0, 1)), parts.values, true);
  // Each element's block, as outer * inner extent + inner; the blocks in order, each once.
  const Extent extent = extent_of(coo.sizes(), layout, block);
  std::vector<std::int64_t> of_element(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t y = row[i] / block.height, x = column[i] / block.width;
    of_element[static_cast<std::size_t>(i)] =
        is_by_rows(layout) ? y * extent.inner + x : x * extent.inner + y;
  }
  std::vector<std::int64_t> blocks = of_element;
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  const std::int64_t area = block.height * block.width;
  std::vector<std::int64_t> places;  // of the elements, in the values
  for (std::int64_t i = 0; i < count; ++i) {
    const auto found = std::lower_bound(blocks.begin(), blocks.end(),
                                        of_element[static_cast<std::size_t>(i)]);
    places.push_back((found - blocks.begin()) * area + row[i] % block.height * block.width +
                     column[i] % block.width);
  }
  const auto nnz = static_cast<std::int64_t>(blocks.size());
  Tensor values = zeros({nnz * area}, coo.dtype());
  if (count > 0) values.index_put_({from_vector(places)}, parts.values);
  if (is_blocked(layout)) values = values.view({nnz, block.height, block.width});
  std::vector<std::int64_t> outer, inner;
  for (const std::int64_t number : blocks) {
    outer.push_back(number / extent.inner);
    inner.push_back(number % extent.inner);
  }
  return make_sparse(layout, coo.sizes(), pointers_of(outer.data(), nnz, extent.outer),
                     from_vector(inner), values, true);
}

Tensor sparse_csr_tensor(const Tensor& crow_indices, const Tensor& col_indices,
                         const Tensor& values, IntList sizes) {
  return make_compressed(Layout::kSparseCsr, crow_indices, col_indices, values, sizes);
}
Tensor sparse_csc_tensor(const Tensor& ccol_indices, const Tensor& row_indices,
                         const Tensor& values, IntList sizes) {
  return make_compressed(Layout::kSparseCsc, ccol_indices, row_indices, values, sizes);
}
Tensor sparse_bsr_tensor(const Tensor& crow_indices, const Tensor& col_indices,
                         const Tensor& values, IntList sizes) {
  return make_compressed(Layout::kSparseBsr, crow_indices, col_indices, values, sizes);
}
Tensor sparse_bsc_tensor(const Tensor& ccol_indices, const Tensor& row_indices,
                         const Tensor& values, IntList sizes) {
  return make_compressed(Layout::kSparseBsc, ccol_indices, row_indices, values, sizes);
}

Tensor to_sparse_csr(const Tensor& source) {
  return to_compressed("to_sparse_csr", source, Layout::kSparseCsr, {});
}
Tensor to_sparse_csc(const Tensor& source) {
  return to_compressed("to_sparse_csc", source, Layout::kSparseCsc, {});
}
Tensor to_sparse_bsr(const Tensor& source, std::int64_t height, std::int64_t width) {
  return to_compressed("to_sparse_bsr", source, Layout::kSparseBsr, {height, width});
}
Tensor to_sparse_bsc(const Tensor& source, std::int64_t height, std::int64_t width) {
  return to_compressed("to_sparse_bsc", source, Layout::kSparseBsc, {height, width});
}

const Tensor& sparse_crow_indices(const Tensor& t) {
  return compressed_parts(t, true, "sparse_crow_indices").indices;
}
const Tensor& sparse_col_indices(const Tensor& t) {
  return compressed_parts(t, true, "sparse_col_indices").plain;
}
const Tensor& sparse_ccol_indices(const Tensor& t) {
  return compressed_parts(t, false, "sparse_ccol_indices").indices;
}
const Tensor& sparse_row_indices(const Tensor& t) {
  return compressed_parts(t, false, "sparse_row_indices").plain;
}

}  // namespace tenon
