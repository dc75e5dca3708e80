#include "tenon/ops/scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <type_traits>

#include "tenon/base/parallel.h"
#include "tenon/ops/dense_lines.h"
#include "tenon/ops/kernels/vulkan/device_kernels.h"
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

template <typename Body>
void for_rows(const Tensor& rows, Body&& body) {
  const std::int64_t length = rows.size(-1);
  if (rows.numel() == 0 || rows.is_meta()) return;
  parallel_for(0, rows.numel() / length, std::max<std::int64_t>(1, 8192 / length),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) body(i);
               });
}

// As wide as needed to lose nothing on the way.
template <typename T>
using Wide =
    std::conditional_t<std::is_same_v<T, Complex64> || std::is_same_v<T, Complex128>, Complex128,
                       std::conditional_t<std::is_same_v<T, std::int64_t>, std::uint64_t, double>>;

template <typename T>
T narrowed(Wide<T> held) {
  if constexpr (std::is_same_v<T, std::int64_t>)
    return static_cast<T>(held);
  else
    return convert_element<T>(held);
}

template <typename T, typename Step>
void run_row(T* out, const T* from, std::int64_t length, Step& step) {
  Wide<T> held = Wide<T>(from[0]);
  out[0] = from[0];
  for (std::int64_t i = 1; i < length; ++i) {
    held = step(held, Wide<T>(from[i]));
    out[i] = narrowed<T>(held);
  }
}

// Down up to DenseLines::kWidest columns side by side.
template <typename T, typename Step>
void run_columns(T* out, const T* from, const DenseLines& lines, std::int64_t count, Step& step) {
  std::array<Wide<T>, DenseLines::kWidest> held;
  for (std::int64_t c = 0; c < count; ++c) {
    held[static_cast<std::size_t>(c)] = Wide<T>(from[c]);
    out[c] = from[c];
  }
  for (std::int64_t row = 1; row < lines.length; ++row) {
    from += lines.inner;
    out += lines.inner;
    for (std::int64_t c = 0; c < count; ++c) {
      Wide<T>& sum = held[static_cast<std::size_t>(c)];
      sum = step(sum, Wide<T>(from[c]));
      out[c] = narrowed<T>(sum);
    }
  }
}

template <typename Step>
Tensor running(const char* what, vulkan::Rows kind, const Tensor& a, std::int64_t dim,
               Step&& step) {
  device_to_offer(what, {&a});
  const std::int64_t d = wrap_dim(dim, a.dim(), what);
  const DType result = is_floating(a.dtype()) || is_complex(a.dtype()) ? a.dtype() : DType::kI64;
  const Tensor input = dense(to(a, result));
  const Tensor out = empty_like(input);
  if (out.is_meta() || out.numel() == 0) return out;
  const DenseLines lines(input, d);
  if (vulkan::holds(input)) {
    if (vulkan::rows(kind, out, lines.length, lines.inner, input)) return out;
    note_fallback(what, out.device());
  }
  visit_dtype(result, [&]<typename T>() {
    const T* from = input.const_data_ptr<T>();
    T* target = out.data_ptr<T>();
    lines.for_each(sizeof(T), [&](std::int64_t first, std::int64_t count) {
      if (lines.inner == 1)
        run_row(target + first, from + first, lines.length, step);
      else
        run_columns(target + first, from + first, lines, count, step);
    });
  });
  return out;
}

// In increasing order with NaN behind everything.
template <typename T>
bool before(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return b != b ? a == a : a < b;
  else
    return a < b;
}

template <typename T>
using Comparable =
    std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

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
  if (vulkan::holds(a)) {
    if (rows.numel() > 0 && vulkan::sort(values, indices, rows, wanted, descending))
      return {placed(values, a, dim), placed(indices, a, dim)};
    note_fallback(what, device);
  }
  // Allocated here: the threads that sort do not have this thread's current allocator.
  const Tensor orders = empty(rows.sizes(), DType::kI64);
  visit_dtype(a.dtype(), [&]<typename T>() {
    if constexpr (!std::is_same_v<T, Complex64> && !std::is_same_v<T, Complex128>) {
      using C = Comparable<T>;
      for_rows(rows, [&](std::int64_t i) {
        const T* row = rows.const_data_ptr<T>() + i * length;
        std::int64_t* order = orders.data_ptr<std::int64_t>() + i * length;
        std::iota(order, order + length, 0);
        // The index decides among equals: then any algorithm is stable.
        const auto comes_first = [&](std::int64_t x, std::int64_t y) {
          const C vx = static_cast<C>(row[x]);
          const C vy = static_cast<C>(row[y]);
          if (descending ? before<C>(vy, vx) : before<C>(vx, vy)) return true;
          if (descending ? before<C>(vx, vy) : before<C>(vy, vx)) return false;
          return x < y;
        };
        if (wanted == length)
          std::sort(order, order + length, comes_first);
        else
          std::partial_sort(order, order + wanted, order + length, comes_first);
        for (std::int64_t j = 0; j < wanted; ++j) {
          values.data_ptr<T>()[i * wanted + j] = row[order[j]];
          indices.data_ptr<std::int64_t>()[i * wanted + j] = order[j];
        }
      });
    }
  });
  return {placed(values, a, dim), placed(indices, a, dim)};
}

}  // namespace

Tensor detail::cumsum(const Tensor& a, std::int64_t dim) {
  return running("cumsum", vulkan::Rows::kCumsum, a, dim, [](auto x, auto y) { return x + y; });
}

Tensor detail::cumprod(const Tensor& a, std::int64_t dim) {
  return running("cumprod", vulkan::Rows::kCumprod, a, dim, [](auto x, auto y) { return x * y; });
}

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
  return sorted("topk", a, d, largest, k);
}

}  // namespace tenon::ops
