#include "tenon/ops/unary.h"

#include <fmt/format.h>

#include <cmath>

#include "tenon/ops/binary.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/blocks.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/defined.h"
#include "tenon/tensor/promotion.h"

namespace tenon::ops {
namespace {

constexpr bool gives_bool(Unary kind) {
  return kind >= Unary::kIsNan || kind == Unary::kLogicalNot;
}
constexpr bool needs_floating(Unary kind) { return kind >= Unary::kExp && kind < Unary::kIsNan; }

struct UnaryDtypes {
  DType compute, kernel, result;
};

// Whether 16-bit floats need no conversion: of a change of sign nowhere, on the host of others too.
bool are_halves(Unary kind, DType dtype, Device device) {
  if (compute_dtype(dtype) == dtype || gives_bool(kind)) return false;
  if (kind == Unary::kNeg || kind == Unary::kAbs) return true;
  return device == Device{} && cpu::unary_block(kind, dtype) != nullptr;
}

UnaryDtypes dtypes_for(Unary kind, const Tensor& a, Device device) {
  DType dtype = a.dtype();
  if (kind == Unary::kLogicalNot) return {DType::kBool, DType::kBool, DType::kBool};
  if (needs_floating(kind) && !is_floating(dtype) && !is_complex(dtype)) dtype = default_dtype();
  if (are_halves(kind, dtype, device)) return {dtype, dtype, dtype};
  const DType compute = compute_dtype(dtype);
  if (gives_bool(kind)) return {compute, DType::kBool, DType::kBool};
  if (kind == Unary::kAbs && is_complex(dtype)) {
    const DType real = dtype == DType::kC64 ? DType::kF32 : DType::kF64;
    return {compute, real, real};
  }
  return {compute, compute, dtype};
}

ElementwisePlan plan_for(Unary kind, const UnaryDtypes& dtypes, const double* numbers) {
  ElementwisePlan plan;
  plan.function = cpu::unary_block(kind, dtypes.compute);
  if (plan.function == nullptr)
    throw InvalidArgument(
        fmt::format("{}: not defined for {}", unary_name(kind), dtype_name(dtypes.compute)));
  plan.name = unary_name(kind);
  plan.on_device = static_cast<DeviceFunction>(static_cast<std::size_t>(DeviceFunction::kUnary) +
                                               static_cast<std::size_t>(kind));
  plan.input_count = 1;
  plan.input_dtypes = {dtypes.compute};
  plan.result_dtype = dtypes.kernel;
  plan.numbers = numbers;
  return plan;
}

}  // namespace

const char* unary_name(Unary kind) {
  constexpr const char* kNames[] = {
      "neg",         "abs",         "sign",      "square",     "relu",        "logical_not",
      "bitwise_not", "clamp",       "floor",     "ceil",       "round",       "trunc",
      "exp",         "exp2",        "expm1",     "log",        "log2",        "log10",
      "log1p",       "sqrt",        "rsqrt",     "reciprocal", "sin",         "cos",
      "tan",         "asin",        "acos",      "atan",       "sinh",        "cosh",
      "tanh",        "erf",         "erfc",      "sigmoid",    "log_sigmoid", "silu",
      "mish",        "gelu",        "gelu_tanh", "leaky_relu", "elu",         "softplus",
      "hardtanh",    "hardsigmoid", "hardswish", "isnan",      "isinf",       "isfinite"};
  return kNames[static_cast<std::size_t>(kind)];
}

Tensor detail::unary(Unary kind, const Tensor& a, const UnaryNumbers& numbers) {
  const Device device = device_to_offer(unary_name(kind), {&a});
  const UnaryDtypes dtypes = dtypes_for(kind, a, device);
  const double plain[2] = {numbers.first, numbers.second};
  const ElementwisePlan plan = plan_for(kind, dtypes, plain);
  Tensor out = elementwise_result(a.sizes(), dtypes.result, device, {&a});
  run_elementwise(plan, out, {&a});
  return out;
}

const Tensor& detail::unary_into(Unary kind, const Tensor& out, const Tensor& a,
                                 const UnaryNumbers& numbers) {
  const Device device = device_to_offer(unary_name(kind), {&a});
  const UnaryDtypes dtypes = dtypes_for(kind, a, device);
  const double plain[2] = {numbers.first, numbers.second};
  const ElementwisePlan plan = plan_for(kind, dtypes, plain);
  check_out(unary_name(kind), out, a.sizes(), dtypes.result, device);
  out.impl()->bump_version();
  run_elementwise(plan, out, {&a});
  return out;
}

Tensor clamp(const Tensor& a, std::optional<Scalar> low, std::optional<Scalar> high) {
  tenon::detail::check_defined("clamp", a);
  if (!low && !high) throw InvalidArgument("clamp: give a lower bound, an upper one, or both");
  ResultType type;
  type.add(a);
  if (low) type.add(*low);
  if (high) type.add(*high);
  // A double does not hold every integer, and the kernel passes over a NaN.
  const auto is_plain = [&](const std::optional<Scalar>& bound) {
    if (!bound) return true;
    const double value = bound->to<double>();
    return type.get() == DType::kI64 ? std::abs(value) <= 0x1p53 : !std::isnan(value);
  };
  if (!is_plain(low) || !is_plain(high)) {
    Tensor result = to(a, type.get());
    if (low) result = maximum(result, *low);
    if (high) result = minimum(result, *high);
    return result;
  }
  return op::clamp(to(a, type.get()),
                   {low ? low->to<double>() : -INFINITY, high ? high->to<double>() : INFINITY});
}

}  // namespace tenon::ops
