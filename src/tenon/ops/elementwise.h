// The loop under all element-wise operators. Thread-safe unless a thread writes an argument.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "tenon/tensor/device_functions.h"
#include "tenon/tensor/tensor.h"

namespace tenon::ops {

// Computes `count` elements: dense arrays in the dtypes that the operator computes in, numbers that
// it may need besides. `out` may be one of the inputs.
using BlockFunction = void (*)(void* out, const void* const* in, std::int64_t count,
                               const double* numbers);

// The most inputs that a plan has.
inline constexpr std::size_t kMaxInputs = 4;

// What an element-wise operator computes, and in which dtypes.
struct ElementwisePlan {
  BlockFunction function = nullptr;
  // The same where the first (the second) of two inputs is one element for the whole block, which
  // such a form takes first and in the dtype's compute_dtype; null where there is none, and the
  // element is repeated.
  std::array<BlockFunction, 2> single{};
  std::size_t input_count = 0;
  std::array<DType, kMaxInputs> input_dtypes{};  // as the function wants them
  DType result_dtype = DType::kF32;              // as the function gives it
  const double* numbers = nullptr;
  const char* name = "";                             // of the operator
  DeviceFunction on_device = DeviceFunction::kNone;  // the same on a device
};

// Runs a plan over `out` and the inputs, which broadcast to it: on the device of `out` where it has
// a kernel for that, else on the host. Nothing on meta. Requires: they broadcast. O(elements).
//
// Operands that are dense and of the right dtype are used in place. Others (strided, broadcast or
// of another dtype) pass in blocks of some hundred elements through buffers in the first-level
// cache. No operand is copied as a whole. Large loops use several threads; each element is computed
// by itself, so results are the same on any number of them.
void run_elementwise(const ElementwisePlan& plan, const Tensor& out,
                     std::initializer_list<const Tensor*> inputs);

// The same where the device has a kernel for it; false, and nothing has happened, where not.
bool run_on_device(const ElementwisePlan& plan, const Tensor& out,
                   std::initializer_list<const Tensor*> inputs);

// A result for inputs of these (broadcast) sizes: in the order of dimensions of those inputs that
// have all of them, if they are dense and agree, else contiguous.
Tensor elementwise_result(IntList sizes, DType dtype, Device device,
                          std::initializer_list<const Tensor*> inputs);

// Throws InvalidArgument unless `a` is of floating point.
void check_floating(const char* what, const Tensor& a);

// Throws InvalidArgument unless `out` can take a result: shape, dtype by can_cast, device, no
// elements that share memory.
void check_out(const char* what, const Tensor& out, IntList sizes, DType result, Device device);

// The dtype that an operator computes in for elements of `dtype`: f32 for the 16-bit floats.
constexpr DType compute_dtype(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 ? DType::kF32 : dtype;
}

}  // namespace tenon::ops
