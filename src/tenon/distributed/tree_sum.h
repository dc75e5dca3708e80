// Sums of tensors that come one after another.
#pragma once

#include <vector>

#include "tenon/tensor/tensor.h"

namespace tenon::distributed {

// Adds neighbours, then pairs of neighbours, and so on: Note [Fixed tree] in process_group.h, for
// what one rank has. Holds at most one tensor for each bit of how many came.
class TreeSum {
 public:
  // Takes the tensor over and may write it. All have one shape and dtype.
  void add(Tensor tensor);
  // The sum of all since the last take(); undefined for none. Exact pairs where their number was a
  // power of two; else the rest is added from the smallest on.
  Tensor take();

 private:
  std::vector<Tensor> sums_;  // of 2^i tensors, or undefined
};

}  // namespace tenon::distributed
