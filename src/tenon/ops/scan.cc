#include "tenon/ops/scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <type_traits>

#include "tenon/base/parallel.h"
#include "tenon/ops/dense_lines.h"
#include "tenon/ops/kernels/cpu/workspaces.h"
#include "tenon/ops/kernels/vulkan/device_kernels.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/half_rows.h"
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
constexpr bool kIsHalf = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
template <typename T>
using Comparable = std::conditional_t<kIsHalf<T>, float, T>;

template <typename C>
struct Place {
  C value;
  std::int64_t index;
};

// The index decides among equals: then any algorithm is stable.
template <bool kDescending>
struct ComesFirst {
  template <typename C>
  bool operator()(const Place<C>& x, const Place<C>& y) const {
    if (kDescending ? before(y.value, x.value) : before(x.value, y.value)) return true;
    if (kDescending ? before(x.value, y.value) : before(y.value, x.value)) return false;
    return x.index < y.index;
  }
};

// The first `wanted` of a row, in order, at the beginning of `places`, which has room for the row.
template <bool kDescending, typename C>
void sort_places(Place<C>* places, const C* row, std::int64_t length, std::int64_t wanted) {
  const ComesFirst<kDescending> comes_first;
  for (std::int64_t i = 0; i < length; ++i) places[i] = {row[i], i};
  if (wanted < length) std::nth_element(places, places + wanted, places + length, comes_first);
  std::sort(places, places + wanted, comes_first);
}

// The same of few in a long row: the best so far are kept in order or, if they are more, in a heap.
// Most elements are passed over by comparing them with the worst of these, a block at a time.
template <bool kDescending, typename C>
void choose_places(Place<C>* places, const C* row, std::int64_t length, std::int64_t wanted) {
  constexpr std::int64_t kBlock = 16, kInOrder = 32;
  const ComesFirst<kDescending> comes_first;
  const bool in_order = wanted <= kInOrder;
  for (std::int64_t i = 0; i < wanted; ++i) places[i] = {row[i], i};
  in_order ? std::sort(places, places + wanted, comes_first)
           : std::make_heap(places, places + wanted, comes_first);
  const Place<C>& worst = places[in_order ? wanted - 1 : 0];
  for (std::int64_t first = wanted; first < length; first += kBlock) {
    const std::int64_t last = std::min(length, first + kBlock);
    const C limit = worst.value;
    int any = 0;  // a NaN counts
    for (std::int64_t i = first; i < last; ++i)
      any |= static_cast<int>(kDescending ? !(row[i] <= limit) : !(row[i] >= limit));
    for (std::int64_t i = any != 0 ? first : last; i < last; ++i) {
      const Place<C> place{row[i], i};
      if (!comes_first(place, worst)) continue;
      std::int64_t at = wanted - 1;
      if (in_order)
        for (; at > 0 && comes_first(place, places[at - 1]); --at) places[at] = places[at - 1];
      else
        std::pop_heap(places, places + wanted, comes_first);
      places[at] = place;
      if (!in_order) std::push_heap(places, places + wanted, comes_first);
    }
  }
  if (!in_order) std::sort_heap(places, places + wanted, comes_first);
}

template <typename C>
void first_places(Place<C>* places, const C* row, std::int64_t length, std::int64_t wanted,
                  bool descending) {
  constexpr std::int64_t kFew = 16;  // of so many, one
  if (wanted * kFew <= length)
    descending ? choose_places<true>(places, row, length, wanted)
               : choose_places<false>(places, row, length, wanted);
  else
    descending ? sort_places<true>(places, row, length, wanted)
               : sort_places<false>(places, row, length, wanted);
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
  if (vulkan::holds(a)) {
    if (rows.numel() > 0 && vulkan::sort(values, indices, rows, wanted, descending))
      return {placed(values, a, dim), placed(indices, a, dim)};
    note_fallback(what, device);
  }
  visit_dtype(a.dtype(), [&]<typename T>() {
    if constexpr (!std::is_same_v<T, Complex64> && !std::is_same_v<T, Complex128>) {
      using C = Comparable<T>;
      const auto room = static_cast<std::size_t>(length) * (sizeof(Place<C>) + sizeof(C));
      cpu::Workspaces rooms(room, rows.numel() / length);
      for_rows(rows, [&](std::int64_t i) {
        const T* const row = rows.const_data_ptr<T>() + i * length;
        char* const taken = rooms.take();
        auto* const places = reinterpret_cast<Place<C>*>(taken);
        const C* wide;
        if constexpr (kIsHalf<T>) {
          auto* const widened = reinterpret_cast<float*>(places + length);
          tenon::detail::convert_dense(widened, row, length);
          wide = widened;
        } else {
          wide = row;
        }
        first_places(places, wide, length, wanted, descending);
        for (std::int64_t j = 0; j < wanted; ++j) {
          values.data_ptr<T>()[i * wanted + j] = row[places[j].index];
          indices.data_ptr<std::int64_t>()[i * wanted + j] = places[j].index;
        }
        rooms.give(taken);
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
