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

template <typename T>
void append_values(const T* at, IntList sizes, IntList strides, std::vector<double>& out) {
  const std::int64_t count = sizes.empty() ? 1 : sizes[0], step = sizes.empty() ? 0 : strides[0];
  for (std::int64_t i = 0; i < count; ++i, at += step)
    if (sizes.size() > 1)
      append_values(at, sizes.without_first(1), strides.without_first(1), out);
    else
      out.push_back(Scalar(*at).to<double>());
}

// All elements in row-major order. Asks for the address once, since that waits for a device.
inline std::vector<double> values(const Tensor& t) {
  std::vector<double> out;
  out.reserve(static_cast<std::size_t>(t.numel()));
  visit_dtype(t.dtype(), [&]<typename T>() {
    append_values(t.const_data_ptr<T>(), t.sizes(), t.strides(), out);
  });
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
