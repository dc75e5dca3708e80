// What derivative formulas have in common. Tensors are floating point or complex; a result has its
// gradient's dtype unless said otherwise. Thread-safe while no thread writes an argument. Throws
// what the operators throw that a function calls. O(elements), unless said otherwise.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "tenon/autograd/record.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"

namespace tenon::autograd {

// Note [Complex gradients]
//
// PyTorch's convention. The gradient of a real number L by z = x + iy is dL/dx + i dL/dy. In that
// direction L grows fastest, so gradient descent needs no change. A complex number counts as two
// real ones, and backward is the transpose of the real-linear derivative.
//   - Where that derivative is multiplication by f'(z) (the function is holomorphic), its transpose
//     is multiplication by conj(f'(z)). Formulas are written as g f'(z), for tangents and for real
//     gradients; `conjugated` makes the other of them: conj(conj(g) f'(z)).
//   - Where it is multiplication by real numbers (sums, views, copies), both are the same.
//   - abs, real, imag, conj and complex are written out.
// A real input beside complex ones takes the real part: match() does that as it casts.
// Node classes for which one of these holds have kTakesComplex; the others are refused by name.
inline Tensor conjugated(const Tensor& t) {
  return t.defined() && is_complex(t.dtype()) ? ops::conj(t) : t;
}

// The gradient of what was broadcast: summed down to `sizes`. The tensor itself where nothing was.
Tensor sum_to(const Tensor& gradient, IntList sizes);
// The same shape, and in the dtype of the input.
inline Tensor match(Tensor gradient, IntList sizes, DType dtype) {
  if (!(gradient.sizes() == sizes)) gradient = sum_to(gradient, sizes);
  return gradient.dtype() == dtype ? gradient : to(gradient, dtype);
}

// An input's shape and dtype; small where the input is like the output, which most are.
class InputShape {
 public:
  // Takes the shape and dtype of an input.
  void save(const Tensor& input) {
    dtype_ = input.dtype();
    sizes_ = input.sizes().to_vector();
  }
  // The gradient as the input's: autograd::match with what was saved.
  Tensor match(const Tensor& gradient) const { return autograd::match(gradient, sizes_, dtype_); }
  IntList sizes() const { return sizes_; }
  DType dtype() const { return dtype_; }

 private:
  DimVector sizes_;
  DType dtype_ = DType::kF32;
};

// Elements of a tensor whose places overlap: each place gets the sum of what was written to it.
// `values` has the shape and dtype of `places`.
void add_overlapping(const Tensor& places, const Tensor& values);

// True where no other tensor can see the elements, whatever the shape: they may be overwritten.
// O(1).
inline bool is_exclusive(const Tensor& t) {
  return t.use_count() == 1 && t.storage().use_count() == 1 &&
         !t.storage().impl()->is_copy_on_write() && t.impl()->autograd_meta() == nullptr &&
         t.is_non_overlapping_and_dense();
}

// The gradients of f at `inputs` by differentiating f itself. For second derivatives, and for
// operators whose derivative is simplest as that of their parts. wanted: bit i for inputs[i].
// Undefined inputs are passed on as they are. Recorded where grad_enabled().
std::vector<Tensor> differentiate(const std::function<Tensor(std::span<const Tensor>)>& f,
                                  std::span<const Tensor> inputs, const Tensor& gradient,
                                  std::uint64_t wanted);

// apply(t) for a linear function whose transpose is `transpose`. Recorded where t needs it. `apply`
// may be any computation, and `transpose` is made of recorded operators. `transpose` takes the
// shape that `apply` gives, and gives that of t. O(the work of apply).
using TensorFunction = std::function<Tensor(const Tensor&)>;
Tensor linear_call(const char* name, const Tensor& t, const TensorFunction& apply,
                   const TensorFunction& transpose);

}  // namespace tenon::autograd
