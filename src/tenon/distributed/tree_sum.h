// Sums of a sequence of tensors.
#pragma once

#include <vector>

#include "tenon/tensor/tensor.h"

namespace tenon::distributed {

// Adds pairs of consecutive tensors, then pairs of these sums, and so on: Note [Fixed tree] in
// process_group.h, within one rank. After n tensors it holds at most log2(n) + 1.
class TreeSum {
 public:
  // Owns the tensor from now on and may write to it. All have the same shape and dtype.
  void add(Tensor tensor);
  // The sum of all tensors since the last take(); undefined where there were none. Where their
  // number is no power of two, the sums that remain are added from the shortest to the longest.
  Tensor take();

 private:
  std::vector<Tensor> sums_;  // of 2^i tensors, or undefined
};

}  // namespace tenon::distributed
