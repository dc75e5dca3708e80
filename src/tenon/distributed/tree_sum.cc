#include "tenon/distributed/tree_sum.h"

#include <utility>

#include "tenon/autograd/grad_mode.h"
#include "tenon/ops/binary.h"

namespace tenon::distributed {

void TreeSum::add(Tensor tensor) {
  const NoGradGuard no_grad;
  for (Tensor& sum : sums_) {
    if (!sum.defined()) {
      sum = std::move(tensor);
      return;
    }
    ops::add_(sum, tensor);
    tensor = std::exchange(sum, Tensor());
  }
  sums_.push_back(std::move(tensor));
}

Tensor TreeSum::take() {
  const NoGradGuard no_grad;
  Tensor all;
  for (Tensor& sum : sums_) {
    if (sum.defined() && all.defined()) ops::add_(sum, all);
    if (sum.defined()) all = std::exchange(sum, Tensor());
  }
  return all;
}

}  // namespace tenon::distributed
