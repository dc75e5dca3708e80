#include "tenon/ops/binary.h"

#include <fmt/format.h>

#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/blocks.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/promotion.h"

namespace tenon::ops {
namespace {

constexpr bool is_comparison(Binary kind) { return kind >= Binary::kEq && kind <= Binary::kGe; }
constexpr bool is_logical(Binary kind) { return kind >= Binary::kLogicalAnd; }

struct Dtypes {
  DType compute;  // of both operands as the kernel sees them
  DType kernel;   // what the kernel gives
  DType result;   // the result's
};

// result_type without a call where there is nothing to promote, a wrapped number being 0-d.
inline DType promoted_type(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.dim() != 0 && b.dim() != 0 ? a.dtype() : result_type(a, b);
}

Dtypes dtypes_for(Binary kind, const Tensor& a, const Tensor& b) {
  if (is_logical(kind)) return {DType::kBool, DType::kBool, DType::kBool};
  DType promoted = promoted_type(a, b);
  const bool needs_floating = kind == Binary::kDiv || kind == Binary::kAtan2;
  if (needs_floating && !is_floating(promoted) && !is_complex(promoted)) promoted = default_dtype();
  const DType compute = compute_dtype(promoted);
  if (is_comparison(kind)) return {compute, DType::kBool, DType::kBool};
  return {compute, compute, promoted};
}

// The exponent, where it is one number that can be read.
BlockFunction shared_power(const Tensor& exponent, DType compute) {
  if (exponent.dim() != 0 || exponent.is_meta() || is_complex(exponent.dtype())) return nullptr;
  return cpu::power_block(exponent.item<double>(), compute);
}

ElementwisePlan plan_for(Binary kind, const Dtypes& dtypes, const Tensor& b) {
  ElementwisePlan plan;
  if (kind == Binary::kPow) plan.function = shared_power(b, dtypes.compute);
  if (plan.function == nullptr) plan.function = cpu::binary_block(kind, dtypes.compute);
  if (plan.function == nullptr)
    throw InvalidArgument(
        fmt::format("{}: not defined for {}", binary_name(kind), dtype_name(dtypes.compute)));
  plan.single = cpu::binary_singles(kind, dtypes.compute);
  plan.name = binary_name(kind);
  plan.on_device = static_cast<DeviceFunction>(kind);
  plan.input_count = 2;
  plan.input_dtypes = {dtypes.compute, dtypes.compute};
  plan.result_dtype = dtypes.kernel;
  return plan;
}

}  // namespace

const char* binary_name(Binary kind) {
  constexpr const char* kNames[] = {
      "add",        "sub",         "mul",         "div",        "maximum",      "minimum",
      "pow",        "atan2",       "fmod",        "remainder",  "floor_divide", "bitwise_and",
      "bitwise_or", "bitwise_xor", "eq",          "ne",         "lt",           "le",
      "gt",         "ge",          "logical_and", "logical_or", "logical_xor"};
  return kNames[static_cast<std::size_t>(kind)];
}

Tensor detail::binary(Binary kind, const Tensor& a, const Tensor& b) {
  const Device device = device_to_offer(binary_name(kind), {&a, &b});
  const Dtypes dtypes = dtypes_for(kind, a, b);
  const ElementwisePlan plan = plan_for(kind, dtypes, b);
  // The common case: two of one shape.
  Tensor out = a.sizes() == b.sizes()
                   ? elementwise_result(a.sizes(), dtypes.result, device, {&a, &b})
                   : elementwise_result(broadcast_sizes(a.sizes(), b.sizes(), binary_name(kind)),
                                        dtypes.result, device, {&a, &b});
  run_elementwise(plan, out, {&a, &b});
  return out;
}

Tensor detail::compare_stored(Binary kind, const Tensor& a, const Tensor& b) {
  const DType dtype = result_type(a, b);
  const auto computable = [&](const Tensor& t) {
    const Tensor same = to(t.detach(), dtype);
    if (dtype == DType::kU64) return same.view_dtype(DType::kI64);  // equal bits are equal numbers
    if (dtype == DType::kU16 || dtype == DType::kU32) return to(same, DType::kI64);
    return is_float8(dtype) ? to(same, DType::kF32) : same;
  };
  return binary(kind, computable(a), computable(b));
}

const Tensor& detail::binary_into(Binary kind, const Tensor& out, const Tensor& a,
                                  const Tensor& b) {
  const char* name = binary_name(kind);
  const Device device = device_to_offer(name, {&a, &b});
  const Dtypes dtypes = dtypes_for(kind, a, b);
  const ElementwisePlan plan = plan_for(kind, dtypes, b);
  check_out(name, out, broadcast_sizes(a.sizes(), b.sizes(), name), dtypes.result, device);
  out.impl()->bump_version();
  run_elementwise(plan, out, {&a, &b});
  return out;
}

Tensor add(const Tensor& a, const Tensor& b, const Scalar& alpha) { return add(a, mul(b, alpha)); }

Tensor sub(const Tensor& a, const Tensor& b, const Scalar& alpha) { return sub(a, mul(b, alpha)); }

}  // namespace tenon::ops
