// Hugging Face's safetensors: named tensors in one file. Thread-safe while no thread writes a
// tensor or the file. O(bytes). A file that cannot be written throws std::runtime_error with the
// path.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "tenon/tensor/tensor.h"

namespace tenon {

// What a safetensors file holds.
struct SafeTensors {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Reads a file by mapping it. Tensors are views of its pages and keep the mapping alive. The
// mapping is private: writes to the tensors do not reach the file. One whose bytes are not aligned
// for its dtype is copied. The file is taken for hostile: header length, JSON, dtypes, shapes and
// offsets are checked for overflow, overlap, gaps, duplicates and truncation. Throws ParseError
// naming the file, the tensor and what is wrong.
SafeTensors load_safetensors(const std::string& path);

// The same from bytes in memory, which are copied; `name` is for the messages.
SafeTensors parse_safetensors(std::string_view bytes, const std::string& name);

// Writes to a temporary name and renames it. Tensors of any stride are written densely, in the
// order of alignment and name. Throws InvalidArgument for a tensor not on the cpu, or of
// complex128.
void save_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace tenon
