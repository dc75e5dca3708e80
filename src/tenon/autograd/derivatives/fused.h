// Derivatives of element-wise operators in one pass, where nothing needs to be recorded.
#pragma once

#include "tenon/autograd/derivatives/formulas.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/simd_forms.h"

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

namespace detail {
inline ops::ElementwisePlan derivative_plan(DeviceFunction on_device, const Tensor& value,
                                            const double* numbers) {
  const DType compute = ops::compute_dtype(value.dtype());
  ops::ElementwisePlan plan;
  plan.name = "a derivative";
  plan.on_device = on_device;
  plan.input_count = 2;
  plan.input_dtypes = {compute, compute};
  plan.result_dtype = compute;
  plan.numbers = numbers;
  return plan;
}
// The gradient itself where no other tensor sees it.
inline Tensor derivative_result(const Tensor& gradient, const Tensor& value) {
  if (is_exclusive(gradient) && gradient.dtype() == value.dtype()) return gradient;
  return ops::elementwise_result(value.sizes(), value.dtype(), value.device(), {&value});
}
}  // namespace detail

// F::fused(g, v, number, number) for each element, or the function that cpu::activation_slope has
// for F::kBlocks; on a device F::kOnDevice. Into g itself where no other tensor sees it.
template <typename F>
Tensor fused_derivative(Tensor& gradient, const Tensor& value, const double* numbers = nullptr) {
  ops::ElementwisePlan plan = detail::derivative_plan(F::kOnDevice, value, numbers);
  if constexpr (requires { F::kBlocks; })
    plan.function = ops::cpu::activation_slope(F::kBlocks, plan.result_dtype);
  else
    plan.function = plan.result_dtype == DType::kF64 ? &detail::fused_block<F, double>
                                                     : &detail::fused_block<F, float>;
  const Tensor out = detail::derivative_result(gradient, value);
  ops::run_elementwise(plan, out, {&gradient, &value});
  return out;
}

// By a kernel of the device alone; undefined where there is none, and on the host.
inline Tensor device_derivative(DeviceFunction function, Tensor& gradient, const Tensor& value) {
  if (value.device().type != DeviceType::kVulkan || !is_floating(value.dtype())) return {};
  const Tensor out = detail::derivative_result(gradient, value);
  const ops::ElementwisePlan plan = detail::derivative_plan(function, value, nullptr);
  return ops::run_on_device(plan, out, {&gradient, &value}) ? out : Tensor();
}

}  // namespace tenon::autograd
