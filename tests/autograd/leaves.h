// Leaves that want a gradient, and what is in a tensor.
#pragma once

#include <initializer_list>
#include <vector>

#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon::testing {

inline Tensor leaf(std::initializer_list<double> elements) {
  return tensor<double>(elements).set_requires_grad(true);
}

// Normal values, f64 or c128.
inline Tensor leaf(IntList sizes, std::uint64_t seed, DType dtype = DType::kF64) {
  Generator generator(seed);
  if (dtype == DType::kF64) return randn(sizes, dtype, generator).set_requires_grad(true);
  return ops::complex(randn(sizes, DType::kF64, generator), randn(sizes, DType::kF64, generator))
      .set_requires_grad(true);
}

// Of an f64 tensor, in row-major order.
inline std::vector<double> values(const Tensor& t) {
  const Tensor dense = contiguous(t.detach());
  const double* data = dense.const_data_ptr<double>();
  return {data, data + dense.numel()};
}

}  // namespace tenon::testing
