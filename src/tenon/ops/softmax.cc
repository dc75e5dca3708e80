#include "tenon/ops/softmax.h"

#include <fmt/format.h>

#include "tenon/ops/kernels/cpu/softmax_rows.h"
#include "tenon/ops/row_loop.h"

namespace tenon::ops {
namespace {

template <typename Choose>
Tensor along(const char* what, const Tensor& a, std::int64_t dim, Choose&& choose) {
  common_device(what, {&a});
  if (!is_floating(a.dtype()))
    throw InvalidArgument(
        fmt::format("{}: of {}; convert it to floating point first", what, dtype_name(a.dtype())));
  const RowView view(a, wrap_dim(dim, a.dim(), what));
  const Tensor out = empty(view.rows().sizes(), view.rows().dtype(), a.device());
  const auto function = choose(cpu::row_functions(out.dtype()));
  auto* result = static_cast<char*>(out.data_ptr());
  const auto bytes = static_cast<std::int64_t>(out.item_size()) * view.length();
  view.for_each(
      [&](std::int64_t i, const char* row) { function(result + i * bytes, row, view.length()); });
  return view.back(out, a.dtype());
}

}  // namespace

Tensor detail::softmax(const Tensor& a, std::int64_t dim) {
  return along("softmax", a, dim, [](const cpu::RowFunctions& f) { return f.softmax; });
}

Tensor detail::log_softmax(const Tensor& a, std::int64_t dim) {
  return along("log_softmax", a, dim, [](const cpu::RowFunctions& f) { return f.log_softmax; });
}

}  // namespace tenon::ops
