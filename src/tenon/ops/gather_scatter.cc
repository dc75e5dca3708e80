// Elements read and added at places that an index names.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "tenon/base/parallel.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/indices.h"
#include "tenon/ops/kernels/cpu/blocks.h"
#include "tenon/ops/kernels/vulkan/device_kernels.h"
#include "tenon/ops/select.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/half_rows.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::ops {
namespace {

constexpr std::int64_t kGrain = 16384;
constexpr std::int64_t kLongSlice = 64;  // elements, added by vectors

// 16-bit floats are added up in f32 on the host, whose single elements take long to convert.
bool is_rounded_once(const Tensor& a) {
  return a.device() == Device{} && compute_dtype(a.dtype()) != a.dtype();
}
// A dense copy to add to, of the same dtype or of the one that sums are of; `a` may be expanded.
Tensor sums_from(const Tensor& a, bool is_wide) {
  if (!is_wide) return clone(a, MemoryFormat::kContiguous);
  return copy_(empty(a.sizes(), compute_dtype(a.dtype())), a);
}

template <typename T>
T sum_of(T a, T b) {
  if constexpr (std::is_same_v<T, bool>)
    return a || b;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  else
    return static_cast<T>(a + b);
}

void check_gather_shape(const char* what, const Tensor& a, const Tensor& index, std::int64_t dim) {
  bool fits = index.dim() == a.dim();
  for (std::int64_t d = 0; fits && d < a.dim(); ++d) fits = d == dim || index.size(d) <= a.size(d);
  if (!fits)
    throw InvalidArgument(
        fmt::format("{}: an index of shape {} for shape {}; it may be larger in dimension {} only",
                    what, to_string(index.sizes()), to_string(a.sizes()), dim));
}

// Walks an index of shape [outer, length, inner] around dimension `dim`: where each of its elements
// points to in a tensor with `strides`. Elements of one line (outer and inner fixed) are visited in
// order by one thread; lines point to different elements, so they may go to different threads.
// Indices are checked just before they are used, while they are in the cache.
class IndexWalk {
 public:
  // `index`: int64 and dense, for a dimension of `size` elements.
  IndexWalk(const char* what, const Tensor& index, std::int64_t size, IntList strides,
            std::int64_t dim)
      : what_(what),
        index_(index),
        size_(size),
        values_(index.const_data_ptr<std::int64_t>()),
        sizes_(index.sizes().to_vector()),
        strides_(strides.to_vector()),
        split_(index.sizes(), dim),
        dim_(static_cast<std::size_t>(dim)),
        step_(strides_.empty() ? 0 : strides_[dim_]) {}

  // visit(position in the index, offset in the tensor), on several threads. Throws InvalidArgument
  // where an index is not in [0, size); some elements have been visited by then.
  template <typename Visit>
  void run(Visit&& visit) const {
    std::atomic<bool> all_fit{true};
    const std::int64_t lines = split_.outer * split_.inner;
    const std::int64_t grain = std::max<std::int64_t>(1, kGrain / split_.size);
    parallel_for(0, lines, grain, [&](std::int64_t begin, std::int64_t end) {
      if (are_equal_rows()) {
        if (!visit_rows(begin, end, visit)) all_fit.store(false, std::memory_order_relaxed);
        return;
      }
      for (std::int64_t line = begin; line < end;) {
        const std::int64_t first = line % split_.inner;
        const std::int64_t count = std::min({kStrip, split_.inner - first, end - line});
        if (!visit_strip(line / split_.inner, first, count, visit))
          return all_fit.store(false, std::memory_order_relaxed);
        line += count;
      }
    });
    if (!all_fit) [[unlikely]] static_cast<void>(checked_indices(what_, index_, size_));
  }

 private:
  static constexpr std::int64_t kStrip = 256;  // lines side by side

  bool fit(std::int64_t at, std::int64_t count) const {
    return cpu::are_indices(values_ + at, count, size_);
  }

  // Short lines that are rows at equal distances.
  bool are_equal_rows() const {
    if (split_.inner != 1 || split_.size >= kCheckedTogether || dim_ == 0 ||
        dim_ >= sizes_.size())
      return false;
    for (std::size_t d = 0; d + 1 < dim_; ++d)
      if (strides_[d] != sizes_[d + 1] * strides_[d + 1]) return false;
    return true;
  }

  // Several at a time. False: an index does not fit.
  template <typename Visit>
  bool visit_rows(std::int64_t begin, std::int64_t end, Visit visit) const {
    const std::int64_t size = split_.size, step = step_, apart = strides_[dim_ - 1];
    const std::int64_t* const values = values_;
    const std::int64_t together = kCheckedTogether / size;
    for (std::int64_t row = begin; row < end;) {
      const std::int64_t last = std::min(end, row + together);
      if (!fit(row * size, (last - row) * size)) return false;
      for (; row < last; ++row) {
        const std::int64_t base = row * apart;
        for (std::int64_t at = row * size; at < (row + 1) * size; ++at)
          visit(at, base + values[at] * step);
      }
    }
    return true;
  }

  // False: an index does not fit. Of `visit` and of members it has copies: a byte that is written
  // might be part of those.
  template <typename Visit>
  bool visit_strip(std::int64_t outer, std::int64_t first, std::int64_t count, Visit visit) const {
    const std::int64_t* const values = values_;
    const std::int64_t step = step_;
    if (split_.inner == 1) {  // a line is a row
      const std::int64_t base = base_of(outer, first);
      const std::int64_t end = (outer + 1) * split_.size;
      for (std::int64_t at = outer * split_.size; at < end;) {
        const std::int64_t checked = std::min(end, at + kCheckedTogether);
        if (!fit(at, checked - at)) return false;
        if (step == 1) {
          for (; at < checked; ++at) visit(at, base + values[at]);
        } else {
          for (; at < checked; ++at) visit(at, base + values[at] * step);
        }
      }
      return true;
    }
    std::array<std::int64_t, kStrip> bases;
    for (std::int64_t j = 0; j < count; ++j)
      bases[static_cast<std::size_t>(j)] = base_of(outer, first + j);
    std::int64_t at = outer * split_.size * split_.inner + first;
    for (std::int64_t l = 0; l < split_.size; ++l, at += split_.inner) {
      if (!fit(at, count)) return false;
      for (std::int64_t j = 0; j < count; ++j)
        visit(at + j, bases[static_cast<std::size_t>(j)] + values[at + j] * step);
    }
    return true;
  }

  // The offset of a line's element 0.
  std::int64_t base_of(std::int64_t outer, std::int64_t inner) const {
    std::int64_t base = 0;
    for (std::size_t d = sizes_.size(); d-- > dim_ + 1; inner /= sizes_[d])
      base += inner % sizes_[d] * strides_[d];
    for (std::size_t d = std::min(dim_, sizes_.size()); d-- > 0; outer /= sizes_[d])
      base += outer % sizes_[d] * strides_[d];
    return base;
  }

  const char* const what_;
  const Tensor& index_;
  const std::int64_t size_;  // of the dimension
  const std::int64_t* const values_;
  const DimVector sizes_, strides_;
  const Split split_;
  const std::size_t dim_;
  const std::int64_t step_;
};

// Of any element: its bytes.
template <typename T>
void gather_bytes(const Tensor& out, const Tensor& a, const Tensor& index, std::int64_t dim) {
  auto* target = static_cast<T*>(out.data_ptr());
  const auto* from = static_cast<const T*>(a.const_data_ptr());
  const std::int64_t size = a.dim() == 0 ? 1 : a.size(dim);
  if (index.dim() <= 1)
    return choose_elements("gather", target, from, index, size, a.dim() == 0 ? 0 : a.stride(0));
  IndexWalk("gather", index, size, a.strides(), dim)
      .run([=](std::int64_t i, std::int64_t offset) { target[i] = from[offset]; });
}

}  // namespace

Tensor detail::gather_elements(const Tensor& a, std::int64_t dim, const Tensor& index) {
  const Device device = device_to_offer("gather", {&a, &index});
  const std::int64_t d = wrap_dim(dim, a.dim(), "gather");
  check_gather_shape("gather", a, index, d);
  Tensor out = empty(index.sizes(), a.dtype(), device);
  HostTurn host;
  if (vulkan::holds(a) && out.numel() > 0) {
    if (a.dim() > 0 && a.numel() > 0 &&
        vulkan::take("gather", out, a, d, integer_indices("gather", index)))
      return out;
    host.take("gather", device);
  }
  const Tensor indices = integer_indices("gather", index);
  if (out.is_meta() || out.numel() == 0) return out;
  visit_bytes(a.item_size(), [&](auto item) { gather_bytes<decltype(item)>(out, a, indices, d); });
  return out;
}

Tensor detail::scatter_add(const Tensor& a, std::int64_t dim, const Tensor& index,
                           const Tensor& source) {
  device_to_offer("scatter_add", {&a, &index, &source});
  const std::int64_t d = wrap_dim(dim, a.dim(), "scatter_add");
  check_gather_shape("scatter_add", a, index, d);
  check_gather_shape("scatter_add", source, index, -1);
  if (source.dtype() != a.dtype())
    throw InvalidArgument(fmt::format("scatter_add: {} into {}; convert one of them",
                                      dtype_name(source.dtype()), dtype_name(a.dtype())));
  // The part of the source that the index covers, densely.
  Tensor used = source;
  for (std::int64_t i = 0; i < source.dim(); ++i) used = used.narrow(i, 0, index.size(i));
  const Tensor out = sums_from(a, is_rounded_once(a));
  HostTurn host;
  if (vulkan::holds(a) && index.numel() > 0) {
    if (a.dim() > 0 &&
        vulkan::add_at("scatter_add", out, d, integer_indices("scatter_add", index), used))
      return out;
    host.take("scatter_add", a.device());
  }
  const Tensor indices = integer_indices("scatter_add", index);
  if (out.is_meta() || index.numel() == 0) return to(out, a.dtype());
  const Tensor values = contiguous(to(used, out.dtype()));
  visit_dtype(out.dtype(), [&]<typename T>() {
    T* target = out.data_ptr<T>();
    const T* from = values.const_data_ptr<T>();
    IndexWalk("scatter_add", indices, a.dim() == 0 ? 1 : a.size(d), out.strides(), d)
        .run([=](std::int64_t i, std::int64_t offset) {
          target[offset] = sum_of<T>(target[offset], from[i]);
        });
  });
  return to(out, a.dtype());
}

namespace {

// Of 16-bit floats, in f32.
template <typename T>
void add_narrow(T* sums, const T* row, std::int64_t count) {
  static const BlockFunction add = cpu::binary_block(Binary::kAdd, DType::kF32);
  constexpr std::int64_t kBlock = 512;
  alignas(64) float wide[2][kBlock];
  for (std::int64_t at = 0; at < count; at += kBlock) {
    const std::int64_t some = std::min(kBlock, count - at);
    tenon::detail::convert_dense(wide[0], sums + at, some);
    tenon::detail::convert_dense(wide[1], row + at, some);
    const void* const both[2] = {wide[0], wide[1]};
    add(wide[0], both, some, nullptr);
    tenon::detail::convert_dense(sums + at, wide[0], some);
  }
}

// As add_slices, for long rows: each thread has some of the target's rows, and adds to them in
// order.
template <typename T, typename AddRow>
void add_long_rows(T* target, const T* from, const std::int64_t* at, const Split& split,
                   std::int64_t chosen, AddRow&& add_row) {
  constexpr std::int64_t kRanges = 8;
  const std::int64_t range = (split.size + kRanges - 1) / kRanges;
  const std::int64_t work = std::max<std::int64_t>(1, chosen * split.inner / kRanges);
  parallel_for(0, split.outer * kRanges, std::max<std::int64_t>(1, kGrain / work),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t task = begin; task < end;) {
                   const std::int64_t outer = task / kRanges;
                   const std::int64_t stop = std::min(end, (outer + 1) * kRanges);
                   const std::int64_t first = task % kRanges * range;
                   const std::int64_t last = ((stop - 1) % kRanges + 1) * range;
                   T* slice = target + outer * split.size * split.inner;
                   const T* row = from + outer * chosen * split.inner;
                   for (std::int64_t i = 0; i < chosen; ++i, row += split.inner)
                     if (at[i] >= first && at[i] < last)
                       add_row(slice + at[i] * split.inner, row, split.inner);
                   task = stop;
                 }
               });
}

// Slices [outer, chosen, inner] onto [outer, size, inner]. The rows of one outer slice are added in
// order; columns of it may go to different threads.
template <typename T>
void add_slices(T* target, const T* from, const std::int64_t* at, const Split& split,
                std::int64_t chosen) {
  constexpr std::int64_t kColumns = 256;
  if (split.inner >= kLongSlice) {
    const BlockFunction add = cpu::binary_block(Binary::kAdd, dtype_of<T>());
    return add_long_rows(target, from, at, split, chosen,
                         [=](T* sums, const T* row, std::int64_t count) {
                           if (add != nullptr) {
                             const void* const both[2] = {sums, row};
                             return add(sums, both, count, nullptr);
                           }
                           if constexpr (sizeof(T) == 2 && !std::is_integral_v<T>)
                             return add_narrow(sums, row, count);
                           for (std::int64_t j = 0; j < count; ++j)
                             sums[j] = sum_of<T>(sums[j], row[j]);
                         });
  }
  const std::int64_t strips = (split.inner + kColumns - 1) / kColumns;
  const std::int64_t work = chosen * std::min(kColumns, split.inner);
  parallel_for(0, split.outer * strips, std::max<std::int64_t>(1, kGrain / work),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t task = begin; task < end; ++task) {
                   const std::int64_t outer = task / strips;
                   const std::int64_t first = task % strips * kColumns;
                   const std::int64_t count = std::min(kColumns, split.inner - first);
                   T* slice = target + outer * split.size * split.inner + first;
                   const T* row = from + outer * chosen * split.inner + first;
                   if (split.inner == 1) {  // rows of one element
                     // Copies, which a byte that is written cannot be part of.
                     const std::int64_t* const places = at;
                     const std::int64_t all = chosen;
                     for (std::int64_t i = 0; i < all; ++i)
                       slice[places[i]] = sum_of<T>(slice[places[i]], row[i]);
                     continue;
                   }
                   for (std::int64_t i = 0; i < chosen; ++i, row += split.inner) {
                     T* sums = slice + at[i] * split.inner;
                     for (std::int64_t j = 0; j < count; ++j) sums[j] = sum_of<T>(sums[j], row[j]);
                   }
                 }
               });
}

}  // namespace

Tensor detail::index_add(const Tensor& a, std::int64_t dim, const Tensor& index,
                         const Tensor& source) {
  device_to_offer("index_add", {&a, &index, &source});
  check_index_1d("index_add", index);
  const std::int64_t d = wrap_dim(dim, a.dim(), "index_add");
  DimVector expected = a.sizes().to_vector();
  if (a.dim() > 0) expected[static_cast<std::size_t>(d)] = index.numel();
  if (!(source.sizes() == IntList(expected)) || source.dtype() != a.dtype())
    throw InvalidArgument(fmt::format("index_add: a source of {} {}; it must be {} {}",
                                      dtype_name(source.dtype()), to_string(source.sizes()),
                                      dtype_name(a.dtype()), to_string(IntList(expected))));
  if (a.dim() == 0 && index.numel() != 1)
    throw InvalidArgument(
        fmt::format("index_add: {} indices into a 0-d tensor; it takes one", index.numel()));
  const bool is_wide = is_rounded_once(a) && Split(a.sizes(), d).inner < kLongSlice;
  const Tensor out = sums_from(a, is_wide);
  HostTurn host;
  if (vulkan::holds(a) && source.numel() > 0) {
    if (a.dim() > 0 && vulkan::add_at("index_add", out, d,
                                      along_dim("index_add", index, source.sizes(), d), source))
      return out;
    host.take("index_add", a.device());
  }
  const Tensor indices = checked_indices("index_add", index, a.dim() == 0 ? 1 : a.size(d));
  if (out.is_meta() || source.numel() == 0) return to(out, a.dtype());
  const Tensor values = contiguous(to(source, out.dtype()));
  visit_dtype(out.dtype(), [&]<typename T>() {
    add_slices(out.data_ptr<T>(), values.const_data_ptr<T>(),
               indices.const_data_ptr<std::int64_t>(), Split(a.sizes(), d), indices.numel());
  });
  return to(out, a.dtype());
}

}  // namespace tenon::ops
