// IDX files: how MNIST and its relatives come. Thread-safe. O(bytes).
#pragma once

#include <string>
#include <string_view>

#include "tenon/tensor/tensor.h"

namespace tenon::nn {

// Reads a file of the IDX format (LeCun's, http://yann.lecun.com/exdb/mnist): two zero bytes, a
// type, a count of dimensions, their sizes as big-endian 32-bit numbers, then the elements,
// big-endian. Compressed with gzip or not: the content decides. Types: u8, i8, i16, i32, f32, f64.
//
// The file is not trusted. Throws ParseError with the path and the numbers if it is truncated, has
// bytes left over, an unknown type, or sizes that overflow. Memory is asked for as the header says,
// up to 4 GiB.
Tensor load_idx(const std::string& path);

// The same from bytes: the file's shape and dtype, the same errors. `name` is for the messages.
Tensor parse_idx(std::string_view bytes, const std::string& name);

// The bytes of a tensor of any shape in that format (uncompressed). Throws InvalidArgument for a
// dtype that it does not have.
std::string format_idx(const Tensor& tensor);

}  // namespace tenon::nn
