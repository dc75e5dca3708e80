// Walking several tensors of one shape together.
#pragma once

#include <array>
#include <cstdint>

#include "tenon/base/parallel.h"
#include "tenon/tensor/int_list.h"

namespace tenon {

class Tensor;

inline constexpr std::size_t kMaxLoopOperands = 5;

// The order in which up to five operands are walked: dimensions sorted so that the first operand
// (the output) is walked along memory, and neighbours joined wherever all operands allow it. A
// contiguous or uniformly permuted set becomes one long row.
//
//   shape [2, 3, 4], all contiguous          -> one row of 24
//   a transposed input                       -> rows along the output, the input strided
//   a broadcast input                        -> its stride is 0 there
//
// Operand 0 is written, the others are read; all have the loop's shape or broadcast to it. Building
// takes O(operands * ndim), a few nanoseconds where all are contiguous and of one shape.
class StridedLoop {
 public:
  struct Operand {
    void* data = nullptr;
    IntList sizes;
    IntList strides;  // in elements
    std::int64_t item_bytes = 0;
  };

  // Requires: each operand's sizes broadcast to `sizes`.
  StridedLoop(IntList sizes, const Operand* operands, std::size_t count);
  // The first is asked for mutable data, the others are read.
  static StridedLoop over(IntList sizes, std::initializer_list<const Tensor*> tensors);

  std::int64_t numel() const { return numel_; }
  std::size_t ndim() const { return ndim_; }
  // Of the rows: the innermost dimension.
  std::int64_t row_length() const { return sizes_[0]; }
  std::int64_t row_stride(std::size_t operand) const { return strides_[0][operand]; }
  std::int64_t size_at(std::size_t d) const { return sizes_[d]; }
  std::int64_t stride_at(std::size_t d, std::size_t operand) const { return strides_[d][operand]; }
  char* data(std::size_t operand) const { return data_[operand]; }

  // The loop over whole rows. Requires: ndim() > 1.
  StridedLoop over_rows() const;

  // Calls row(pointers, byte strides, length) for the elements [begin, end) of the walk.
  template <typename Row>
  void run(std::int64_t begin, std::int64_t end, Row&& row) const;

  // All elements, large loops on several threads. Each element is computed once, by itself, so
  // the result does not depend on how the walk is cut.
  template <typename Row>
  void run_parallel(Row&& row, std::int64_t worth = kGrain) const {
    if (numel_ == 0) return;
    parallel_for(0, numel_, even_grain(numel_, worth),
                 [&](std::int64_t begin, std::int64_t end) { run(begin, end, row); });
  }

  static constexpr std::int64_t kGrain = 32768;  // elements that are worth a second thread

 private:
  using Strides = std::array<std::int64_t, kMaxLoopOperands>;
  using Pointers = std::array<char*, kMaxLoopOperands>;

  // The same for several dimensions; 0 stands for any number of operands.
  template <std::size_t kOperands, typename Row>
  void run_rows(std::int64_t begin, std::int64_t end, Row&& row) const;

  void add_dim(std::int64_t size, const Strides& strides);
  void sort_dims();
  void join_dims();

  std::size_t count_;
  std::size_t ndim_ = 0;
  std::int64_t numel_ = 1;
  Pointers data_;
  std::array<std::int64_t, kMaxDims> sizes_;  // innermost first
  std::array<Strides, kMaxDims> strides_;     // in bytes
};

template <typename Row>
void StridedLoop::run(std::int64_t begin, std::int64_t end, Row&& row) const {
  if (ndim_ == 1) [[likely]] {
    Pointers at = data_;
    for (std::size_t i = 0; i < count_; ++i) at[i] += begin * strides_[0][i];
    return row(at.data(), strides_[0].data(), end - begin);
  }
  // Short rows are many: for the usual numbers of operands the steps between rows have no loops.
  if (count_ == 2) return run_rows<2>(begin, end, row);
  if (count_ == 3) return run_rows<3>(begin, end, row);
  run_rows<0>(begin, end, row);
}

template <std::size_t kOperands, typename Row>
void StridedLoop::run_rows(std::int64_t begin, std::int64_t end, Row&& row) const {
  const std::size_t count = kOperands == 0 ? count_ : kOperands;
  std::array<std::int64_t, kMaxDims> index;
  Pointers at = data_;
  std::int64_t rest = begin;
  for (std::size_t d = 0; d < ndim_; ++d) {
    index[d] = rest % sizes_[d];
    rest /= sizes_[d];
    for (std::size_t i = 0; i < count; ++i) at[i] += index[d] * strides_[d][i];
  }
  for (std::int64_t left = end - begin; left > 0;) {
    const std::int64_t length = std::min(left, sizes_[0] - index[0]);
    Pointers pointers;
    for (std::size_t i = 0; i < count; ++i) pointers[i] = at[i];
    row(pointers.data(), strides_[0].data(), length);
    left -= length;
    if (index[0] != 0) {
      for (std::size_t i = 0; i < count; ++i) at[i] -= index[0] * strides_[0][i];
      index[0] = 0;
    }
    for (std::size_t d = 1; d < ndim_; ++d) {
      for (std::size_t i = 0; i < count; ++i) at[i] += strides_[d][i];
      if (++index[d] < sizes_[d]) break;
      for (std::size_t i = 0; i < count; ++i) at[i] -= sizes_[d] * strides_[d][i];
      index[d] = 0;
    }
  }
}

}  // namespace tenon
