// The gradient of a matrix that rows were multiplied with, whole or in pieces.
#pragma once

#include "tenon/autograd/gradient_taker.h"
#include "tenon/autograd/record.h"

namespace tenon::autograd {

// Whether the functions below know the operands: dense f32 or f64 matrices on the host, not empty.
bool has_weight_gradient(const Tensor& g, const Tensor& a);

// out[m, n] = g^T a for g [k, m] and a [k, n]. A large result is computed in pieces of rows, which
// depend on sizes alone, so that both functions find the same bits. Requires: has_weight_gradient.
Tensor weight_gradient(const Tensor& g, const Tensor& a);
// The same, each piece given to the taker at once: of the result, only the pieces in work are
// there. Without begin() and finish().
void weight_gradient(const Tensor& g, const Tensor& a, GradientTaker& taker);

}  // namespace tenon::autograd
