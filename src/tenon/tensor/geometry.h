// Arithmetic on sizes and strides, without any tensor. Thread-safe: pure functions of numbers.
#pragma once

#include <cstdint>
#include <string_view>

#include "tenon/tensor/int_list.h"

namespace tenon {

// How a tensor relates to its storage.
enum class Layout : std::uint8_t {
  kStrided,
  kSparseCoo,
  kSparseCsr,  // compressed rows; columns; the same of dense blocks
  kSparseCsc,
  kSparseBsr,
  kSparseBsc,
};
// "sparse_csr", as PyTorch says.
std::string_view layout_name(Layout layout);

// An order of dimensions in memory.
enum class MemoryFormat : std::uint8_t {
  kContiguous,      // the last dimension innermost
  kChannelsLast,    // 4-d NCHW stored as NHWC
  kChannelsLast3d,  // 5-d NCDHW stored as NDHWC
  kPreserve,        // as the source, where that is dense
};

// The number of elements. Throws InvalidArgument for a negative size, more than kMaxDims
// dimensions, or a product above 2^63 - 1.
std::int64_t checked_numel(IntList sizes);
// Requires: the sizes were checked.
inline std::int64_t numel_of(IntList sizes) {
  std::int64_t numel = 1;
  for (const std::int64_t size : sizes) numel *= size;
  return numel;
}

// Dense strides in the order of `format` (not kPreserve). A size of 0 counts as 1, so that strides
// stay those of a shape with that dimension. Throws InvalidArgument for a format of other ndim.
DimVector strides_for(IntList sizes, MemoryFormat format = MemoryFormat::kContiguous);
// Writes contiguous strides. Requires: room for sizes.size() values.
inline void fill_contiguous_strides(IntList sizes, std::int64_t* strides) {
  std::int64_t step = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    strides[d] = step;
    step *= sizes[d] > 1 ? sizes[d] : 1;
  }
}

// --- The conditions of the flags. In all of them the stride of a dimension of size 1 is free.
// The strides are those of strides_for(sizes, kContiguous), or there are no elements.
bool is_contiguous(IntList sizes, IntList strides);
// The strides are those of strides_for(sizes, kChannelsLast): 4-d only.
bool is_channels_last_contiguous(IntList sizes, IntList strides);
// The same in five dimensions.
bool is_channels_last_3d_contiguous(IntList sizes, IntList strides);
// True for 4-d tensors whose strides increase in the order C, W, H, N, dense or not.
// False for those that are also contiguous as NCHW (such as N11W).
// A hint which format results should have.
bool is_channels_last(IntList sizes, IntList strides);
bool is_channels_last_3d(IntList sizes, IntList strides);
// Some order of the dimensions makes the strides contiguous: each address between the first and
// the last belongs to exactly one element.
bool is_non_overlapping_and_dense(IntList sizes, IntList strides);
// No two elements share an address, as far as sorting strides can tell: true is certain.
bool is_surely_non_overlapping(IntList sizes, IntList strides);

// How many elements of storage, from its beginning, the geometry reaches; 0 without elements.
// Requires: strides and offset are not negative. Throws InvalidArgument on overflow.
std::int64_t storage_elements(IntList sizes, IntList strides, std::int64_t offset);

// `dim` counted from the end if negative. A 0-d tensor is taken for one of one dimension. Throws
// InvalidArgument with the range.
[[noreturn]] void refuse_dim(std::int64_t dim, std::int64_t ndim, const char* what);
inline std::int64_t wrap_dim(std::int64_t dim, std::int64_t ndim, const char* what) {
  const std::int64_t range = ndim > 1 ? ndim : 1;
  if (dim < -range || dim >= range) [[unlikely]]
    refuse_dim(dim, ndim, what);
  return dim < 0 ? dim + range : dim;
}

// Of a wrapped dimension.
inline std::size_t as_index(std::int64_t dim) { return static_cast<std::size_t>(dim); }

// Writes `sizes` with its one -1, if any, replaced so that the product is `numel`. Throws
// InvalidArgument showing both. Requires: room for sizes.size() values.
void infer_sizes(IntList sizes, std::int64_t numel, std::int64_t* result);
DimVector infer_sizes(IntList sizes, std::int64_t numel);

// Writes strides with which the same memory has the new sizes. False if it would have to be copied.
// Requires: the same number of elements, and room for new_sizes.size() values. O(ndim).
bool view_strides(IntList sizes, IntList strides, IntList new_sizes, std::int64_t* result);

// The sizes that both broadcast to. Throws InvalidArgument showing both and the first dimension
// that does not fit. `what` names the operation.
DimVector broadcast_sizes(IntList a, IntList b, const char* what);

}  // namespace tenon
