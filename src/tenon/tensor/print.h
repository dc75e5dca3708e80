// Tensors as text. Thread-safe unless a thread writes the tensor. O(elements printed). Throws
// InvalidArgument for a quantised tensor of a view that has lost its scales.
#pragma once

#include <iosfwd>
#include <string>

#include "tenon/tensor/tensor.h"

namespace tenon {

// How much of a tensor is printed, and how exactly.
struct PrintOptions {
  int precision = 4;              // digits after the point
  std::int64_t threshold = 1000;  // more elements than this are summarised
  std::int64_t edge_items = 3;    // how many of each end a summary shows
  int line_width = 80;
};

// As PyTorch prints: columns of one width, whole numbers without digits ("2."), scientific notation
// where the magnitudes differ much, "..." for the middle of long dimensions. Also dtype and device
// where they are not the defaults, and the shape where it cannot be seen.
//
//   tensor([[ 1.0000, -2.5000],
//           [ 0.0000,  4.0000]])
// Throws InvalidArgument for a negative precision or number of edge items.
std::string to_string(const Tensor& tensor, const PrintOptions& options = {});
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace tenon
