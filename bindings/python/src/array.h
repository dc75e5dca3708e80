// Arrays: memory of an allocator, with a shape and a dtype, that others can share.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/memory/data_ptr.h"

namespace tenon::python {

namespace nb = nanobind;

// A kind of element: how NumPy, the buffer protocol and DLPack name it.
struct ElementType {
  const char* name;           // "float32"
  const char* typestr;        // of __array_interface__; null: none
  const char* buffer_format;  // of the buffer protocol; null: none
  std::uint8_t dlpack_code;
  std::uint8_t dlpack_bits;
  std::uint8_t bytes;
};

// From a name, a NumPy dtype or scalar type, or a PyTorch dtype. Throws InvalidArgument, listing
// the known names.
const ElementType& element_type(nb::handle dtype);

// The most dimensions, as NumPy has it.
inline constexpr std::size_t kMostDimensions = 64;

// The Python class is written against the C interface: an array is made for every allocation, and
// this costs a third of what a class of a binding library does.
void bind_array(nb::module_& module);

// A new array that owns `data` and keeps `owner` (the allocator, and with it the device) alive.
// `readable`: the host can reach the bytes. Steals nothing; returns a new reference.
PyObject* make_array(DataPtr data, std::size_t size_bytes, nb::handle owner, bool readable);
PyObject* make_array(DataPtr data, std::size_t size_bytes, nb::handle owner, bool readable,
                     const ElementType& type, std::vector<std::int64_t> shape);

// Bytes of an array of that shape. Throws InvalidArgument for negative lengths, too many dimensions
// and sizes that overflow.
std::size_t bytes_of(const std::vector<std::int64_t>& shape, const ElementType& type);

// The block of an array of ours that was not freed. Throws nb::type_error for another object,
// InvalidArgument for a freed array.
const DataPtr& block_of(nb::handle array);

}  // namespace tenon::python
