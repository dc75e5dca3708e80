#include "tenon/ops/complex.h"

#include <fmt/format.h>

#include "tenon/ops/unary.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"

namespace tenon::ops {
namespace {

enum Part : std::int64_t { kReal, kImaginary };

DType real_of(DType dtype) { return dtype == DType::kC64 ? DType::kF32 : DType::kF64; }

// A view of one part of a contiguous complex tensor.
Tensor part_of(const Tensor& contiguous_one, Part part) {
  return contiguous_one.detach().unsqueeze(-1).view_dtype(real_of(contiguous_one.dtype()))
      .select(-1, part);
}

void check_complex(const char* what, const Tensor& a) {
  if (!is_complex(a.dtype()))
    throw InvalidArgument(fmt::format("{}: a tensor of {}, shape {}; it takes complex numbers",
                                      what, dtype_name(a.dtype()), to_string(a.sizes())));
}

Tensor copy_of_part(const char* what, const Tensor& a, Part part) {
  const HostTurn device = common_device(what, {&a});
  check_complex(what, a);
  const Tensor out = empty(a.sizes(), real_of(a.dtype()), device);
  if (!out.is_meta()) copy_(out, part_of(contiguous(a.detach()), part));
  return out;
}

}  // namespace

Tensor detail::conj(const Tensor& a) {
  const HostTurn device = common_device("conj", {&a});
  check_complex("conj", a);
  const Tensor out = clone(a.detach(), MemoryFormat::kContiguous);
  if (!out.is_meta()) neg_(part_of(out, kImaginary));
  return out;
}

Tensor detail::real(const Tensor& a) { return copy_of_part("real", a, kReal); }
Tensor detail::imag(const Tensor& a) { return copy_of_part("imag", a, kImaginary); }

Tensor detail::complex(const Tensor& real, const Tensor& imaginary) {
  const HostTurn device = common_device("complex", {&real, &imaginary});
  const DType dtype = real.dtype();
  if (dtype != imaginary.dtype() || !(real.sizes() == imaginary.sizes()) ||
      (dtype != DType::kF32 && dtype != DType::kF64))
    throw InvalidArgument(fmt::format(
        "complex: real parts of {} {}, imaginary parts of {} {}; it takes float32 or float64, the "
        "same shape and dtype for both",
        dtype_name(dtype), to_string(real.sizes()), dtype_name(imaginary.dtype()),
        to_string(imaginary.sizes())));
  const Tensor out = empty(real.sizes(), dtype == DType::kF32 ? DType::kC64 : DType::kC128, device);
  if (out.is_meta()) return out;
  copy_(part_of(out, kReal), real.detach());
  copy_(part_of(out, kImaginary), imaginary.detach());
  return out;
}

}  // namespace tenon::ops
