// Tensors as plain lists, for results that share no code with what they check.
#pragma once

#include <functional>
#include <vector>

#include "tenon/base/random.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon::testing {

using Index = std::vector<std::int64_t>;

// The element at an index, read by strides.
inline double element(const Tensor& t, const Index& index) {
  std::int64_t at = 0;
  for (std::size_t d = 0; d < index.size(); ++d) at += index[d] * t.strides()[d];
  return visit_dtype(t.dtype(),
                     [&]<typename T>() { return Scalar(t.const_data_ptr<T>()[at]).to<double>(); });
}

// Calls visit for every index of a shape, in row-major order.
inline void for_each_index(IntList sizes, const std::function<void(const Index&)>& visit) {
  Index index(sizes.size(), 0);
  if (numel_of(sizes) == 0) return;
  for (;;) {
    visit(index);
    std::size_t d = index.size();
    while (d > 0 && ++index[d - 1] == sizes[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

inline std::vector<double> values(const Tensor& t) {
  std::vector<double> out;
  for_each_index(t.sizes(), [&](const Index& index) { out.push_back(element(t, index)); });
  return out;
}

// A floating-point tensor that is dense, sliced or permuted, with normal values.
inline Tensor random_floats(Random& random, IntList sizes, DType dtype) {
  Generator generator(random.next());
  DimVector wide = sizes.to_vector();
  if (wide.size() >= 2 && random.chance(0.4)) {
    std::swap(wide[0], wide[wide.size() - 1]);
    return randn(wide, dtype, generator).transpose(0, -1);
  }
  if (!wide.empty() && random.chance(0.4)) {
    wide[0] = wide[0] * 2;
    return randn(wide, dtype, generator).slice(0, 0, std::nullopt, 2);
  }
  return randn(wide, dtype, generator);
}

}  // namespace tenon::testing
