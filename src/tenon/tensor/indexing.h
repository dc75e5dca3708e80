// What may stand in t[{...}]. Thread-safe unless a thread writes an argument. What cannot index a
// tensor is refused where it is used: InvalidArgument, with the index and the shape. Views are
// O(1), copies O(elements of the result).
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>

#include "tenon/tensor/tensor.h"

namespace tenon {

// start:stop:step; an absent bound is open. Negative bounds count from the end, step > 0.
struct Slice {
  std::optional<std::int64_t> start;
  std::optional<std::int64_t> stop;
  std::int64_t step = 1;

  Slice() = default;
  Slice(std::optional<std::int64_t> from, std::optional<std::int64_t> to = std::nullopt,
        std::int64_t by = 1)
      : start(from), stop(to), step(by) {}
};

struct Ellipsis {};  // all dimensions that the other indices leave
struct NewAxis {};   // a new dimension of size 1

// One index: a number (drops its dimension), a Slice, Ellipsis, NewAxis, a tensor of integers
// (chooses elements), or a tensor of bools (a mask over as many dimensions as it has).
//
//   t[{Slice(1, 7, 3), 0}]           a view
//   t[{Ellipsis(), NewAxis()}]       a view
//   t[{mask}], t[{Slice(), rows}]    a copy, in memory of its own
//
// Index tensors broadcast together. Their dimensions take the place of the first indexed one where
// all are neighbours, and come first otherwise, as in NumPy and PyTorch.
class TensorIndex {
 public:
  // What an index is.
  enum class Kind : std::uint8_t { kNumber, kSlice, kEllipsis, kNewAxis, kTensor };

  template <std::integral T>
  requires(!std::same_as<T, bool>) TensorIndex(T number)
      : kind_(Kind::kNumber), number_(static_cast<std::int64_t>(number)) {}
  TensorIndex(Slice slice) : kind_(Kind::kSlice), slice_(slice) {}
  TensorIndex(Ellipsis) : kind_(Kind::kEllipsis) {}
  TensorIndex(NewAxis) : kind_(Kind::kNewAxis) {}
  TensorIndex(Tensor tensor) : kind_(Kind::kTensor), tensor_(std::move(tensor)) {}

  // What it was made of. Requires: the part that its kind has.
  Kind kind() const { return kind_; }
  std::int64_t number() const { return number_; }
  const Slice& slice() const { return slice_; }
  const Tensor& tensor() const { return tensor_; }

 private:
  Kind kind_;
  std::int64_t number_ = 0;
  Slice slice_;
  Tensor tensor_;
};

// Where a tensor of bools is true: one int64 tensor of positions for each dimension, in row-major
// order. The host only.
std::vector<Tensor> nonzero_positions(const Tensor& mask);

namespace detail {

// One step of a walk over chosen elements. For each element of the broadcast indices: how far the
// chosen place is from the tensor's first element, in elements.
std::vector<std::int64_t> chosen_offsets(const Tensor& source, std::span<const Tensor> indices,
                                         IntList index_sizes);

}  // namespace detail
}  // namespace tenon
