#include "tenon/ops/binary.h"

#include <fmt/format.h>

#include <cmath>

#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/blocks.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/defined.h"
#include "tenon/tensor/geometry.h"
#include "tenon/tensor/half_rows.h"
#include "tenon/tensor/promotion.h"

namespace tenon::ops {
namespace {

constexpr bool is_comparison(Binary kind) { return kind >= Binary::kEq && kind <= Binary::kGe; }
constexpr bool is_logical(Binary kind) { return kind >= Binary::kLogicalAnd; }

struct BinaryDtypes {
  DType compute;  // of both operands as the kernel sees them
  DType kernel;   // what the kernel gives
  DType result;   // the result's
};

// result_type without a call where there is nothing to promote, a wrapped number being 0-d.
inline DType promoted_type(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.dim() != 0 && b.dim() != 0 ? a.dtype() : result_type(a, b);
}

BinaryDtypes dtypes_for(Binary kind, const Tensor& a, const Tensor& b) {
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

// Whether both are on the host and of the result's 16-bit floats, or one is and the other a number
// for all of its elements: such a number stays in f32. Where the others overlap, a row could have
// one element of each, and only one of the two would stay as it is.
bool are_halves(const BinaryDtypes& dtypes, const Tensor& a, const Tensor& b, Device device) {
  if (compute_dtype(dtypes.result) == dtypes.result || device != Device{}) return false;
  const auto is_single = [](const Tensor& x, const Tensor& others) {
    return x.numel() == 1 && others.numel() > 1 &&
           is_surely_non_overlapping(others.sizes(), others.strides());
  };
  const bool is_first = a.dtype() == dtypes.result, is_second = b.dtype() == dtypes.result;
  if (is_first && is_second) return true;
  return is_first ? is_single(b, a) : is_second && is_single(a, b);
}

// False where the operator does not exist for operands of `dtype`.
bool take_functions(ElementwisePlan& plan, Binary kind, DType dtype, const Tensor& b) {
  if (kind == Binary::kPow) plan.function = shared_power(b, dtype);
  plan.input_count = plan.function == nullptr ? 2 : 1;  // the function knows a shared exponent
  if (plan.function == nullptr) plan.function = cpu::binary_block(kind, dtype);
  plan.single = cpu::binary_singles(kind, dtype);
  plan.input_dtypes = {dtype, dtype};
  return plan.function != nullptr;
}

ElementwisePlan plan_for(Binary kind, const BinaryDtypes& dtypes, const Tensor& a, const Tensor& b,
                         Device device) {
  ElementwisePlan plan;
  plan.name = binary_name(kind);
  plan.on_device = static_cast<DeviceFunction>(kind);
  plan.result_dtype = dtypes.result;
  if (are_halves(dtypes, a, b, device) && take_functions(plan, kind, dtypes.result, b)) return plan;
  plan.result_dtype = dtypes.kernel;
  if (take_functions(plan, kind, dtypes.compute, b)) return plan;
  throw InvalidArgument(
      fmt::format("{}: not defined for {}", plan.name, dtype_name(dtypes.compute)));
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
  const BinaryDtypes dtypes = dtypes_for(kind, a, b);
  const ElementwisePlan plan = plan_for(kind, dtypes, a, b, device);
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
  const BinaryDtypes dtypes = dtypes_for(kind, a, b);
  const ElementwisePlan plan = plan_for(kind, dtypes, a, b, device);
  check_out(name, out, broadcast_sizes(a.sizes(), b.sizes(), name), dtypes.result, device);
  out.impl()->bump_version();
  run_elementwise(plan, out, {&a, &b});
  return out;
}

namespace {

// a + alpha b, or a - alpha b, by blocks that stay in the first-level cache. Two operations: an
// element is rounded as it is by add(a, mul(b, alpha)), whose product is of `Stored`.
template <typename T, Binary kind, typename Stored = T>
void run_scaled(void* out, const void* const* in, std::int64_t count, const double* numbers) {
  static const BlockFunction scale = cpu::binary_singles(Binary::kMul, dtype_of<T>())[1];
  static const BlockFunction combine = cpu::binary_block(kind, dtype_of<T>());
  constexpr std::int64_t kBlock = 4096 / sizeof(T);
  alignas(64) T scaled[kBlock];
  using Number = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;
  const auto alpha = static_cast<T>(static_cast<Number>(numbers[0]));
  for (std::int64_t at = 0; at < count; at += kBlock) {
    const std::int64_t some = std::min(kBlock, count - at);
    const void* const factors[2] = {&alpha, static_cast<const T*>(in[1]) + at};
    scale(scaled, factors, some, nullptr);
    if constexpr (!std::is_same_v<T, Stored>) {
      alignas(64) Stored rounded[kBlock];
      tenon::detail::convert_dense(rounded, scaled, some);
      tenon::detail::convert_dense(scaled, rounded, some);
    }
    const void* const terms[2] = {static_cast<const T*>(in[0]) + at, scaled};
    combine(static_cast<T*>(out) + at, terms, some, nullptr);
  }
}

template <Binary kind>
BlockFunction scaled_block(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return &run_scaled<float, kind>;
    case DType::kF16:
      return &run_scaled<float, kind, Half>;
    case DType::kBF16:
      return &run_scaled<float, kind, BFloat16>;
    case DType::kF64:
      return &run_scaled<double, kind>;
    case DType::kI64:
      return &run_scaled<std::int64_t, kind>;
    case DType::kI32:
      return &run_scaled<std::int32_t, kind>;
    case DType::kI16:
      return &run_scaled<std::int16_t, kind>;
    case DType::kI8:
      return &run_scaled<std::int8_t, kind>;
    case DType::kU8:
      return &run_scaled<std::uint8_t, kind>;
    default:
      return nullptr;
  }
}

// Whether nothing is recorded, labelled or traced, so that one call may stand for two.
bool is_plain(const Tensor& t) {
  const DispatchKeySet keys = (t.key_set() | detail::thread_keys.included) -
                              detail::thread_keys.excluded - DispatchKey::kAutograd;
  return t.device() == Device{} && t.impl()->autograd_meta() == nullptr &&
         (keys - DispatchKey::kCpu).empty();
}

template <Binary kind>
Tensor add_scaled(const BinaryOperator& op, const Tensor& a, const Tensor& b,
                  const Scalar& alpha) {
  tenon::detail::check_defined(op.name(), a, b);
  const bool is_integer = alpha.dtype() == DType::kI64;
  const bool is_real = is_integer || alpha.dtype() == DType::kF64;
  const double number = is_real ? alpha.to<double>() : 0;
  // Of integers, a number that f64 has exactly and that raises no dtype.
  constexpr double kMost = 1 << 24;
  const bool is_exact = is_integer ? std::abs(number) <= kMost : is_real && is_floating(b.dtype());
  const BlockFunction function = scaled_block<kind>(b.dtype());
  if (function == nullptr || !is_exact || a.dtype() != b.dtype() || a.dim() == 0 ||
      b.dim() == 0 || !is_plain(a) || !is_plain(b) || op.kernel(DispatchKey::kCpu) != nullptr ||
      op::mul.kernel(DispatchKey::kCpu) != nullptr)
    return op(a, mul(b, alpha));
  ElementwisePlan plan;
  plan.function = function;
  plan.input_count = 2;
  plan.result_dtype = compute_dtype(a.dtype());
  plan.input_dtypes = {plan.result_dtype, plan.result_dtype};
  plan.numbers = &number;
  plan.name = binary_name(kind);
  const Tensor out = elementwise_result(broadcast_sizes(a.sizes(), b.sizes(), plan.name),
                                        a.dtype(), a.device(), {&a, &b});
  run_elementwise(plan, out, {&a, &b});
  return out;
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b, const Scalar& alpha) {
  return add_scaled<Binary::kAdd>(op::add, a, b, alpha);
}

Tensor sub(const Tensor& a, const Tensor& b, const Scalar& alpha) {
  return add_scaled<Binary::kSub>(op::sub, a, b, alpha);
}

}  // namespace tenon::ops
