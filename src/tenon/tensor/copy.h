// Moving values between tensors of any shape, dtype and order. Thread-safe unless a thread writes
// an argument. O(elements); a lazy_clone is O(1) until one side is written. Throws OutOfMemory for
// a copy that has no room.
#pragma once

#include "tenon/tensor/tensor.h"

namespace tenon {

class StridedLoop;

// Writes the values of `source`, broadcast and converted (convert_element in dtype.h), into
// `target`, and bumps its version. Overlapping operands are copied as if through a buffer. To meta
// tensors nothing moves. Throws InvalidArgument if the shapes do not broadcast, `target` has
// elements that share an address, or the source alone is on meta. Also if memory other than the
// host's would need more than a plain copy of a block.
const Tensor& copy_(const Tensor& target, const Tensor& source);

// Every element becomes `value`; the version is bumped.
const Tensor& fill_(const Tensor& target, const Scalar& value);
inline const Tensor& zero_(const Tensor& target) { return fill_(target, 0); }

// A copy in memory of its own, from the current allocator. kPreserve keeps the order of dimensions
// where the source is dense.
Tensor clone(const Tensor& source, MemoryFormat format = MemoryFormat::kPreserve);

// A clone that shares the bytes until one side is written (copy_on_write.h); its geometry is the
// source's.
Tensor lazy_clone(const Tensor& source);

// The tensor itself where it is in that order already, else a copy.
Tensor contiguous(const Tensor& source, MemoryFormat format = MemoryFormat::kContiguous);

// The tensor itself where nothing changes, else a converted copy in the same order.
Tensor to(const Tensor& source, DType dtype);
// On another device. To the meta device: the shape alone.
Tensor to(const Tensor& source, Device device);
// Where the host reads it: the tensor itself, or a copy on the cpu.
Tensor to_host(const Tensor& source);

namespace detail {

// The copy itself, without checks, version or gradient; by a kernel where both are on a device that
// has one. Requires: the host reaches both, the source broadcasts, no overlap. (copy_kernels.cc)
void copy_elements(const Tensor& target, const Tensor& source);
void fill_elements(const Tensor& target, const Scalar& value);
// Operand 1 of a loop to operand 0, elements of so many bytes: 1, 2, 4, 8 or 16. Of the source any
// strides, negative ones too.
void copy_items(const StridedLoop& loop, std::int64_t item);

// Converts one row: data[0] is written, data[1] read, strides in bytes (0 repeats an element).
using RowFunction = void (*)(char** data, const std::int64_t* strides, std::int64_t length);
RowFunction conversion_row(DType to, DType from);
// Of elements without gaps.
void convert_elements(DType to_dtype, void* to, DType from_dtype, const void* from,
                      std::int64_t count);

}  // namespace detail
}  // namespace tenon
