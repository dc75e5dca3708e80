// Derivatives of element-wise operators in one pass, where nothing needs to be recorded.
#pragma once

#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/ops/elementwise.h"

namespace tenon::autograd {

namespace detail {
template <typename F, typename T>
void fused_block(void* out, const void* const* in, std::int64_t count, const double* numbers) {
  const T* g = static_cast<const T*>(in[0]);
  const T* v = static_cast<const T*>(in[1]);
  T* to = static_cast<T*>(out);
  const T first = numbers == nullptr ? T(0) : static_cast<T>(numbers[0]);
  const T second = numbers == nullptr ? T(0) : static_cast<T>(numbers[1]);
  for (std::int64_t i = 0; i < count; ++i) to[i] = F::fused(g[i], v[i], first, second);
}
}  // namespace detail

// F::fused(g, v, number, number) for each element; into g itself where no other tensor sees it.
template <typename F>
Tensor fused_derivative(Tensor& gradient, const Tensor& value, const double* numbers = nullptr) {
  const DType compute = ops::compute_dtype(value.dtype());
  ops::ElementwisePlan plan;
  plan.function =
      compute == DType::kF64 ? &detail::fused_block<F, double> : &detail::fused_block<F, float>;
  plan.input_count = 2;
  plan.input_dtypes = {compute, compute};
  plan.result_dtype = compute;
  plan.numbers = numbers;
  const Tensor out =
      is_exclusive(gradient) && gradient.dtype() == value.dtype()
          ? gradient
          : ops::elementwise_result(value.sizes(), value.dtype(), value.device(), {&value});
  ops::run_elementwise(plan, out, {&gradient, &value});
  return out;
}

}  // namespace tenon::autograd
