#include "tenon/ops/softmax.h"

#include <fmt/format.h>

#include "tenon/ops/dense_lines.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/softmax_rows.h"
#include "tenon/ops/kernels/vulkan/device_kernels.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::ops {
namespace {

// The result has the order of dimensions of the input, where that is dense.
template <typename Row, typename Columns>
Tensor along(const char* what, vulkan::Rows kind, const Tensor& a, std::int64_t dim, Row row,
             Columns columns) {
  device_to_offer(what, {&a});
  if (!is_floating(a.dtype()))
    throw InvalidArgument(
        fmt::format("{}: of {}; convert it to floating point first", what, dtype_name(a.dtype())));
  const std::int64_t d = wrap_dim(dim, a.dim(), what);
  const Tensor input = dense(to(a, compute_dtype(a.dtype())));
  const Tensor out = empty_like(input);
  if (out.is_meta() || out.numel() == 0) return to(out, a.dtype());
  const DenseLines lines(input, d);
  if (vulkan::holds(input)) {
    if (vulkan::rows(kind, out, lines.length, lines.inner, input)) return to(out, a.dtype());
    note_fallback(what, out.device());
  }
  const auto item = static_cast<std::int64_t>(out.item_size());
  const auto* from = static_cast<const char*>(input.const_data_ptr());
  auto* result = static_cast<char*>(out.data_ptr());
  lines.for_each(item, [&](std::int64_t first, std::int64_t count) {
    if (lines.inner == 1)
      row(result + first * item, from + first * item, lines.length);
    else
      columns(result + first * item, from + first * item, lines.length, lines.inner, count);
  });
  return to(out, a.dtype());
}

}  // namespace

Tensor detail::softmax(const Tensor& a, std::int64_t dim) {
  const DType compute = compute_dtype(a.dtype());
  return along("softmax", vulkan::Rows::kSoftmax, a, dim, cpu::row_functions(compute).softmax,
               cpu::column_functions(compute).softmax);
}

Tensor detail::log_softmax(const Tensor& a, std::int64_t dim) {
  const DType compute = compute_dtype(a.dtype());
  return along("log_softmax", vulkan::Rows::kLogSoftmax, a, dim,
               cpu::row_functions(compute).log_softmax, cpu::column_functions(compute).log_softmax);
}

}  // namespace tenon::ops
