// The parts of complex numbers. A real tensor is its own conjugate and real part. Results are
// contiguous and share no memory with a complex argument. Gradients follow the convention of
// docs/autograd.md. Throws InvalidArgument for what does not fit; OutOfMemory. O(elements).
//
// Thread-safe unless a thread writes an argument.
#pragma once

#include "tenon/ops/dispatch.h"
#include "tenon/ops/labels.h"

namespace tenon::ops {

namespace detail {
Tensor conj(const Tensor& a);
Tensor real(const Tensor& a);
Tensor imag(const Tensor& a);
Tensor complex(const Tensor& real, const Tensor& imaginary);
}  // namespace detail

namespace op {
inline constinit Operator<Tensor(const Tensor&)> conj("conj", &detail::conj, &labels::like);
inline constinit Operator<Tensor(const Tensor&)> real("real", &detail::real, &labels::like);
inline constinit Operator<Tensor(const Tensor&)> imag("imag", &detail::imag, &labels::like);
inline constinit Operator<Tensor(const Tensor&, const Tensor&)> complex("complex", &detail::complex,
                                                                        &labels::broadcast);
}  // namespace op

// x - iy of x + iy; the tensor itself if it is real.
inline Tensor conj(const Tensor& a) {
  return a.defined() && !is_complex(a.dtype()) ? a : op::conj(a);
}
// x of x + iy, in the real dtype; the tensor itself if it is real.
inline Tensor real(const Tensor& a) {
  return a.defined() && !is_complex(a.dtype()) ? a : op::real(a);
}
// y of x + iy, in the real dtype. Refuses real tensors.
inline Tensor imag(const Tensor& a) { return op::imag(a); }
// x + iy of two tensors of one shape and dtype (float32 or float64), in the complex dtype.
inline Tensor complex(const Tensor& real, const Tensor& imaginary) {
  return op::complex(real, imaginary);
}

}  // namespace tenon::ops
