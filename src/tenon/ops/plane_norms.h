// What the norms of batches and of groups of channels have in common, on the host.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "tenon/tensor/tensor.h"

namespace tenon::ops {

// Throws InvalidArgument unless `a` has channels, and each of `all` that there is one number for
// each of them.
void check_channels(const char* what, const Tensor& a, std::initializer_list<const Tensor*> all);

// A parameter by channel in the shape that broadcasts over a batch: [1, C, 1, ...].
Tensor by_channel(const Tensor& p, const Tensor& a);

// The numbers of a parameter or a statistic, or `otherwise` where there is none.
std::vector<double> numbers_of(const Tensor& t, std::int64_t channels, double otherwise);

// Whether planes of one channel are worth a call each, on the host: dense, and long ones or few.
bool are_worth_calls(const Tensor& a);

// Mean and mean of squared deviations of rows of a dense tensor: [rows, 2] of f64. 16-bit floats
// are widened, several short rows together.
Tensor moments_of_rows(const Tensor& a, std::int64_t length);

// x * factor + shift, with the numbers of plane i at i % numbers.size(). 16-bit floats are widened
// in pieces: of a long plane, or of several short ones. Requires: are_worth_calls.
struct PlaneNumbers {
  double factor, shift;
};
Tensor scale_planes(const Tensor& a, std::span<const PlaneNumbers> numbers);

}  // namespace tenon::ops
