#include "tenon/tensor/strided_loop.h"

#include <algorithm>

#include "tenon/base/check.h"
#include "tenon/tensor/tensor.h"

namespace tenon {

StridedLoop::StridedLoop(IntList sizes, const Operand* operands, std::size_t count)
    : count_(count) {
  TENON_DCHECK(count <= kMaxLoopOperands);
  for (std::size_t i = 0; i < count; ++i) data_[i] = static_cast<char*>(operands[i].data);
  for (std::size_t d = sizes.size(); d-- > 0;) {
    const std::size_t from_end = sizes.size() - d;
    numel_ *= sizes[d];
    if (sizes[d] == 1) continue;
    Strides strides;
    for (std::size_t i = 0; i < count; ++i) {
      const Operand& o = operands[i];
      const bool walks = from_end <= o.sizes.size() && o.sizes[o.sizes.size() - from_end] != 1;
      strides[i] = walks ? o.strides[o.strides.size() - from_end] * o.item_bytes : 0;
    }
    add_dim(sizes[d], strides);
  }
  if (ndim_ == 0) add_dim(1, Strides{});
  if (ndim_ > 1) {
    sort_dims();
    join_dims();
  }
}

StridedLoop StridedLoop::over(IntList sizes, std::initializer_list<const Tensor*> tensors) {
  std::array<Operand, kMaxLoopOperands> operands;
  std::size_t count = 0;
  for (const Tensor* tensor : tensors) {
    void* data = count == 0 ? tensor->data_ptr() : const_cast<void*>(tensor->const_data_ptr());
    operands[count++] = {data, tensor->sizes(), tensor->strides(),
                         static_cast<std::int64_t>(tensor->item_size())};
  }
  return StridedLoop(sizes, operands.data(), count);
}

StridedLoop StridedLoop::over_rows() const {
  TENON_DCHECK(ndim_ > 1);
  StridedLoop rows = *this;
  rows.numel_ /= sizes_[0];
  rows.ndim_ -= 1;
  std::copy_n(sizes_.begin() + 1, rows.ndim_, rows.sizes_.begin());
  std::copy_n(strides_.begin() + 1, rows.ndim_, rows.strides_.begin());
  return rows;
}

void StridedLoop::add_dim(std::int64_t size, const Strides& strides) {
  // Joined at once where the dimension continues the last one, as in contiguous operands.
  if (ndim_ > 0) {
    bool continues = true;
    for (std::size_t i = 0; i < count_; ++i)
      continues &= strides[i] == strides_[ndim_ - 1][i] * sizes_[ndim_ - 1];
    if (continues) {
      sizes_[ndim_ - 1] *= size;
      return;
    }
  }
  sizes_[ndim_] = size;
  strides_[ndim_++] = strides;
}

void StridedLoop::sort_dims() {
  // Innermost first by the output's stride; the inputs decide where the output says nothing (a
  // reduction or broadcast output). Insertion keeps the given order among equals.
  const auto comes_before = [&](const Strides& a, const Strides& b) {
    for (std::size_t i = 0; i < count_; ++i) {
      if (a[i] == 0 || b[i] == 0 || a[i] == b[i]) continue;
      return a[i] < b[i];
    }
    return false;
  };
  for (std::size_t i = 1; i < ndim_; ++i)
    for (std::size_t j = i; j > 0 && comes_before(strides_[j], strides_[j - 1]); --j) {
      std::swap(strides_[j], strides_[j - 1]);
      std::swap(sizes_[j], sizes_[j - 1]);
    }
}

void StridedLoop::join_dims() {
  const std::size_t dims = ndim_;
  ndim_ = 0;
  for (std::size_t d = 0; d < dims; ++d) {
    const Strides strides = strides_[d];  // add_dim may write here
    add_dim(sizes_[d], strides);
  }
}

}  // namespace tenon
