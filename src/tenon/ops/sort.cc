#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/parallel.h"
#include "tenon/ops/indices.h"
#include "tenon/ops/kernels/cpu/row_order.h"
#include "tenon/ops/kernels/cpu/workspaces.h"
#include "tenon/ops/kernels/vulkan/device_kernels.h"
#include "tenon/ops/scan.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::ops {
namespace {

// The tensor as dense rows along `dim`, of its own dtype.
Tensor rows_along(const Tensor& a, std::int64_t dim) {
  return contiguous(a.dim() == 0 ? a.view({1}) : a.movedim(dim, -1));
}

// Rows given back the place of their dimension.
Tensor placed(const Tensor& rows, const Tensor& a, std::int64_t dim) {
  if (a.dim() == 0) return rows.size(0) == 1 ? rows.view({}) : rows;
  return contiguous(rows.movedim(-1, dim));
}

// Sorts the first `wanted` of each row; all, stably, where that is the row's length.
SortResult sorted(const char* what, const Tensor& a, std::int64_t dim, bool descending,
                  std::int64_t wanted) {
  const Device device = device_to_offer(what, {&a});
  if (is_complex(a.dtype()))
    throw InvalidArgument(fmt::format("{}: complex numbers have no order", what));
  const Tensor rows = rows_along(a, dim);
  const std::int64_t length = rows.size(-1);
  DimVector sizes = rows.sizes().to_vector();
  sizes.back() = wanted;
  SymSizes shape;  // what these sizes stand for
  if (tenon::detail::is_labelled(rows)) [[unlikely]] {
    shape = rows.sym_sizes();
    if (wanted != length) shape.back() = SymInt(wanted);
  }
  const KnownShapes known({&shape, 1});
  const Tensor values = empty(sizes, a.dtype(), device);
  const Tensor indices = empty(sizes, DType::kI64, device);
  if (wanted == 0 || rows.is_meta()) return {placed(values, a, dim), placed(indices, a, dim)};
  HostTurn host;
  if (vulkan::holds(a)) {
    if (rows.numel() > 0 && vulkan::sort(values, indices, rows, wanted, descending))
      return {placed(values, a, dim), placed(indices, a, dim)};
    host.take(what, device);
  }
  const std::int64_t count = rows.numel() / length;
  cpu::Workspaces rooms(cpu::row_order_room(length), count);
  const auto sort_rows = [&](auto item, std::int64_t begin, std::int64_t end) {
    using T = decltype(item);
    char* const room = rooms.take();
    for (std::int64_t i = begin; i < end; ++i) {
      const T* const row = static_cast<const T*>(rows.const_data_ptr()) + i * length;
      T* const chosen = static_cast<T*>(values.data_ptr()) + i * wanted;
      std::int64_t* const places = indices.data_ptr<std::int64_t>() + i * wanted;
      cpu::row_order(a.dtype(), row, length, wanted, descending, places, room);
      for (std::int64_t j = 0; j < wanted; ++j) chosen[j] = row[places[j]];
    }
    rooms.give(room);
  };
  visit_bytes(a.item_size(), [&](auto item) {
    parallel_for(0, count, std::max<std::int64_t>(1, 8192 / length),
                 [&](std::int64_t begin, std::int64_t end) { sort_rows(item, begin, end); });
  });
  return {placed(values, a, dim), placed(indices, a, dim)};
}

}  // namespace

SortResult detail::sort(const Tensor& a, std::int64_t dim, bool descending) {
  const std::int64_t d = wrap_dim(dim, a.dim(), "sort");
  return sorted("sort", a, d, descending, a.dim() == 0 ? 1 : a.size(d));
}

SortResult detail::topk(const Tensor& a, std::int64_t k, std::int64_t dim, bool largest) {
  const std::int64_t d = wrap_dim(dim, a.dim(), "topk");
  const std::int64_t length = a.dim() == 0 ? 1 : a.size(d);
  if (k < 0 || k > length)
    throw InvalidArgument(fmt::format("topk: {} of the {} elements along dimension {} of shape {}",
                                      k, length, dim, to_string(a.sizes())));
  return sorted("topk", a, d, largest, a.dim() == 0 ? 1 : k);
}

}  // namespace tenon::ops
