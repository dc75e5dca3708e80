// NumPy's .npy: one array in a file. Thread-safe while no thread writes the tensor or the file.
// O(bytes), O(1) for a mapped array. A file that cannot be written throws std::runtime_error with
// the path.
#pragma once

#include <string>
#include <string_view>

#include "tenon/tensor/tensor.h"

namespace tenon {

// Reads versions 1 to 3, both orders of dimensions and both byte orders. A native, aligned array is
// a view of the mapped file (private pages: writing does not reach it). The file is taken for
// hostile. Throws ParseError naming the file and what is wrong (object arrays, structured dtypes,
// shapes that do not fit the file).
Tensor load_npy(const std::string& path);
// From bytes in memory, which are copied; `name` is for the messages.
Tensor parse_npy(std::string_view bytes, const std::string& name);

// Writes version 1, contiguous, to a temporary name and renames it. Throws InvalidArgument for a
// tensor not on the cpu, or of bfloat16 or float8, which NumPy does not have.
void save_npy(const std::string& path, const Tensor& tensor);

}  // namespace tenon
