#include "tenon/ops/matmul.h"

#include <fmt/format.h>

#include <optional>

#include "tenon/base/parallel.h"
#include "tenon/ops/binary.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/gemm.h"
#include "tenon/ops/kernels/vulkan/device_kernels.h"
#include "tenon/ops/sparse.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::ops {
namespace {

[[noreturn]] void refuse(const char* what, const Tensor& a, const Tensor& b) {
  throw InvalidArgument(
      fmt::format("{}: shapes {} and {} ({} and {}): the last size of the first must be the last "
                  "but one of the second, and the dtypes equal and not bool",
                  what, to_string(a.sizes()), to_string(b.sizes()), dtype_name(a.dtype()),
                  dtype_name(b.dtype())));
}

// How BLAS can take the last two dimensions as they are; nothing where it cannot.
bool as_matrix(const Tensor& t, cpu::Matrix& matrix) {
  const std::int64_t rows = t.size(-2), columns = t.size(-1);
  const std::int64_t row_stride = t.stride(-2), column_stride = t.stride(-1);
  if ((column_stride == 1 || columns == 1) && (row_stride >= columns || rows == 1)) {
    matrix = {nullptr, std::max<std::int64_t>(rows == 1 ? columns : row_stride, 1), false};
    return columns == 1 ? row_stride >= 1 || rows == 1 : true;
  }
  if ((row_stride == 1 || rows == 1) && (column_stride >= rows || columns == 1)) {
    matrix = {nullptr, std::max<std::int64_t>(columns == 1 ? rows : column_stride, 1), true};
    return true;
  }
  return false;
}

// The tensor, or a copy of it, that BLAS can take.
Tensor prepared(const Tensor& t, cpu::Matrix& matrix) {
  if (as_matrix(t, matrix)) return t;
  const Tensor dense = contiguous(t);
  matrix = {nullptr, std::max<std::int64_t>(dense.size(-1), 1), false};
  return dense;
}

// Where each matrix of a batch begins, in elements.
std::int64_t batch_offset(const Tensor& t, std::int64_t index) {
  std::int64_t offset = 0;
  for (std::int64_t d = t.dim() - 3; d >= 0; --d) {
    offset += index % t.size(d) * t.stride(d);
    index /= t.size(d);
  }
  return offset;
}

// How far apart the matrices of a batch lie, in elements; nothing where the distances differ.
std::optional<std::int64_t> distance(const Tensor& t) {
  std::int64_t apart = 0, next = -1;
  for (std::int64_t d = t.dim() - 3; d >= 0; --d) {
    if (t.size(d) == 1) continue;
    if (next < 0) apart = t.stride(d);
    if (next >= 0 && t.stride(d) != next) return std::nullopt;
    next = t.stride(d) * t.size(d);
  }
  return apart;
}

// False: the host has to.
bool multiply_on_device(const Tensor& out, const Tensor& a, const Tensor& b, double beta) {
  if (vulkan::holds(out)) {
    const std::int64_t m = out.size(-2), n = out.size(-1);
    const auto of_a = distance(a), of_b = distance(b);
    if (!of_a || !of_b) return multiply_on_device(out, contiguous(a), contiguous(b), beta);
    if (vulkan::matmul(out, m, n, a.size(-1), a, {a.stride(-2), a.stride(-1), *of_a}, b,
                       {b.stride(-2), b.stride(-1), *of_b}, beta))
      return true;
  }
  return false;
}

// out [..., m, n], contiguous, = a [..., m, k] b [..., k, n] + beta out; equal batches. To each row
// the bias is added, if there is one (cpu::takes_bias). On meta it makes the copies that the host
// makes, so that formulas count them.
void multiply(const Tensor& out, const Tensor& a, const Tensor& b, double beta,
              const Tensor& bias = {}) {
  if (out.numel() == 0) return;
  const std::int64_t m = out.size(-2), n = out.size(-1), k = a.size(-1);
  if (k == 0) {
    if (beta == 0 && !out.is_meta()) zero_(out);
    return;
  }
  const bool by_host = out.device().type == DeviceType::kCpu || out.is_meta();
  HostTurn host;
  if (!by_host) {
    if (multiply_on_device(out, a, b, beta)) return;
    host.take("matmul", out.device());
  }
  cpu::Products all{.dtype = a.dtype(), .m = m, .n = n, .k = k, .beta = beta, .out_stride = n};
  const Tensor ready_a = prepared(a, all.a);
  const Tensor ready_b = prepared(b, all.b);
  if (out.is_meta()) return;
  all.is_narrow = out.dtype() == a.dtype() && compute_dtype(a.dtype()) != a.dtype();
  all.out_apart = m * n;
  if (bias.defined()) all.bias = bias.const_data_ptr();
  const auto a_apart = distance(ready_a), b_apart = distance(ready_b);
  const bool is_even = a_apart && b_apart;
  if (is_even) {
    all.a_apart = *a_apart;
    all.b_apart = *b_apart;
  }
  const std::int64_t batch = out.numel() / (m * n);
  // Products that are not divided go side by side on the threads; large ones each on all of them.
  constexpr std::int64_t kWork = 1 << 21;
  const std::int64_t grain =
      cpu::is_divided(m, n, k) ? batch : std::max<std::int64_t>(1, kWork / (m * n * k));
  const auto item = static_cast<std::int64_t>(a.item_size());
  const auto out_item = static_cast<std::int64_t>(out.item_size());
  const auto* from_a = static_cast<const char*>(ready_a.const_data_ptr());
  const auto* from_b = static_cast<const char*>(ready_b.const_data_ptr());
  auto* target = static_cast<char*>(out.data_ptr());
  const auto some = [&](std::int64_t first, std::int64_t count) {
    cpu::Products part = all;
    part.count = count;
    part.a.data = from_a + batch_offset(ready_a, first) * item;
    part.b.data = from_b + batch_offset(ready_b, first) * item;
    part.out = target + first * m * n * out_item;
    cpu::gemm(part);
  };
  parallel_for(0, batch, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t step = is_even ? grain : 1;
    for (std::int64_t first = begin; first < end; first += step)
      some(first, std::min(step, end - first));
  });
}

void check_operands(const char* what, const Tensor& a, const Tensor& b) {
  const bool fits = a.dim() >= 1 && b.dim() >= 1 && a.dtype() == b.dtype() &&
                    a.dtype() != DType::kBool && a.size(-1) == b.size(b.dim() == 1 ? 0 : -2);
  if (!fits) refuse(what, a, b);
}

DimVector batch_of(const Tensor& t) {
  return DimVector(t.sizes().data(), static_cast<std::size_t>(t.dim() - 2));
}

DimVector joined(DimVector batch, std::int64_t rows, std::int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

// What `a` and the other operand of a product with n columns are converted to.
DType operand_dtype(const Tensor& a, Device device, std::int64_t n) {
  const bool by_host = device.type == DeviceType::kCpu || device.type == DeviceType::kMeta;
  const bool is_half = compute_dtype(a.dtype()) != a.dtype();
  if (is_half && by_host && cpu::takes_half(a.dtype(), a.size(-2), n, a.size(-1)))
    return a.dtype();
  return compute_dtype(a.dtype());
}

// Both of at least two dimensions; the result has the dtype that they are converted to.
Tensor product(const Tensor& a, const Tensor& b, Device device) {
  if (b.dim() == 2 && a.dim() > 2) {
    // One matrix for the whole batch: the batch is rows.
    const Tensor rows = a.reshape({a.numel() / std::max<std::int64_t>(1, a.size(-1)), a.size(-1)});
    if (a.size(-1) > 0)
      return product(rows, b, device).view(joined(batch_of(a), a.size(-2), b.size(-1)));
  }
  const DimVector batch = broadcast_sizes(batch_of(a), batch_of(b), "matmul");
  const DType dtype = operand_dtype(a, device, b.size(-1));
  const Tensor out = empty(joined(batch, a.size(-2), b.size(-1)), dtype, device);
  multiply(out, to(a, dtype).expand(joined(batch, a.size(-2), a.size(-1))),
           to(b, dtype).expand(joined(batch, b.size(-2), b.size(-1))), 0);
  return out;
}

}  // namespace

Tensor detail::matmul(const Tensor& a, const Tensor& b) {
  const Device device = device_to_offer("matmul", {&a, &b});
  check_operands("matmul", a, b);
  Tensor out =
      product(a.dim() == 1 ? a.unsqueeze(0) : a, b.dim() == 1 ? b.unsqueeze(1) : b, device);
  if (b.dim() == 1) out = out.squeeze(-1);
  if (a.dim() == 1) out = out.squeeze(b.dim() == 1 ? -1 : -2);
  return to(out, a.dtype());
}

Tensor detail::bmm(const Tensor& a, const Tensor& b) {
  if (a.dim() != 3 || b.dim() != 3 || a.size(0) != b.size(0)) refuse("bmm", a, b);
  return ops::matmul(a, b);
}

Tensor detail::addmm(const Tensor& bias, const Tensor& a, const Tensor& b) {
  const Device device = device_to_offer("addmm", {&bias, &a, &b});
  check_operands("addmm", a, b);
  if (a.dim() != 2 || b.dim() != 2) refuse("addmm", a, b);
  const DType dtype = operand_dtype(a, device, b.size(1));
  if (dtype == a.dtype() && compute_dtype(dtype) != dtype && bias.dtype() == dtype &&
      bias.dim() == 1 && bias.numel() == b.size(1) &&
      cpu::takes_bias(dtype, a.size(0), b.size(1))) {
    const Tensor out = empty({a.size(0), b.size(1)}, dtype, device);
    multiply(out, a, b, 0, contiguous(bias));
    return out;
  }
  const Tensor out = empty({a.size(0), b.size(1)}, compute_dtype(a.dtype()), device);
  const Tensor row = to(bias, out.dtype());  // converted once, not in each row
  if (!out.is_meta()) copy_(out, row.expand(out.sizes()));
  multiply(out, to(a, dtype), to(b, dtype), 1);
  return to(out, a.dtype());
}

Tensor detail::linear(const Tensor& a, const Tensor& weight, const Tensor& bias) {
  if (weight.dim() != 2 || a.dim() < 1 || a.size(-1) != weight.size(1))
    throw InvalidArgument(fmt::format("linear: an input of shape {} for a weight [out, in] of {}",
                                      to_string(a.sizes()), to_string(weight.sizes())));
  if (!bias.defined()) return ops::matmul(a, weight.t());
  if (bias.numel() != weight.size(0))
    throw InvalidArgument(fmt::format("linear: a bias of shape {} for a weight of {}",
                                      to_string(bias.sizes()), to_string(weight.sizes())));
  DimVector sizes = a.sizes().to_vector();
  sizes.back() = 1;
  const std::int64_t rows = numel_of(sizes);
  sizes.back() = weight.size(0);
  return ops::addmm(bias, a.reshape({rows, a.size(-1)}), weight.t()).view(sizes);
}

Tensor detail::outer(const Tensor& a, const Tensor& b) {
  if (a.dim() != 1 || b.dim() != 1)
    throw InvalidArgument(fmt::format("outer: shapes {} and {}; take vectors", to_string(a.sizes()),
                                      to_string(b.sizes())));
  return mul(a.unsqueeze(1), b.unsqueeze(0));
}

}  // namespace tenon::ops
