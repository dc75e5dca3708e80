// Which dtype an operation on several dtypes computes in: PyTorch's rules. Thread-safe; a
// ResultType belongs to one thread. The default dtype is the process's, an atomic value.
#pragma once

#include "tenon/tensor/dtype.h"

namespace tenon {

class Tensor;
class Scalar;

// The smallest dtype that both convert to without changing kind: bool < integers < floating point <
// complex. Symmetric; f16 with bf16 is f32, u8 with a signed integer the next signed one that holds
// both. Of the storage-only dtypes, wide unsigned integers promote with floating point alone and
// 8-bit floats with nothing, as in PyTorch: else InvalidArgument. O(1).
DType promote_types(DType a, DType b);

// True when a result of dtype `from` may be stored in a tensor of dtype `to`. A kind never falls:
// floating point does not go into integers, and only bool into bool.
bool can_cast(DType from, DType to);

// The dtype that plain C++ numbers become: f32 unless set otherwise.
DType default_dtype();
// Throws InvalidArgument unless it is a real floating-point dtype.
void set_default_dtype(DType dtype);

// Collects operands. Those with dimensions decide. 0-d tensors count only where their kind is
// higher (bool < integer < floating < complex). Wrapped numbers (a tensor made from a C++ number,
// or a Scalar) count only where theirs is higher still.
class ResultType {
 public:
  // Counts an operand in; returns itself.
  ResultType& add(const Tensor& operand);
  ResultType& add(const Scalar& operand);
  // Throws InvalidArgument when nothing was added.
  DType get() const;

 private:
  static constexpr int kNone = -1;
  int with_dims_ = kNone;
  int zero_dim_ = kNone;
  int wrapped_ = kNone;
};

// Of two operands, by ResultType.
DType result_type(const Tensor& a, const Tensor& b);
DType result_type(const Tensor& a, const Scalar& b);

}  // namespace tenon
