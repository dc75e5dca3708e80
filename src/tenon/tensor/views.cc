// The view functions of Tensor: each shapes the metadata of a fresh alias in place.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tenon/base/error.h"
#include "tenon/tensor/dim_labels.h"
#include "tenon/tensor/sparse_parts.h"
#include "tenon/tensor/tensor.h"

namespace tenon {
namespace {

// A dimension of a tensor that must have one.
inline std::size_t existing_dim(const Tensor& t, std::int64_t dim, const char* what) {
  if (t.dim() == 0)
    throw InvalidArgument(fmt::format("{}: a 0-d tensor has no dimension {}", what, dim));
  return as_index(wrap_dim(dim, t.dim(), what));
}

// Plain loops for few dimensions: the library's copy would be a call for each list.
inline void write_geometry(SizesAndStrides& shape, IntList sizes, IntList strides) {
  std::int64_t* to_sizes = shape.sizes_data();
  std::int64_t* to_strides = shape.strides_data();
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    to_sizes[d] = sizes[d];
    to_strides[d] = strides[d];
  }
}

// Writes all dimensions of `from` but those in `dropped`, in order, and returns the product of
// their sizes.
inline std::int64_t write_without(SizesAndStrides& to, const SizesAndStrides& from,
                                  std::uint64_t dropped) {
  const std::int64_t* from_sizes = from.sizes_data();
  const std::int64_t* from_strides = from.strides_data();
  std::int64_t* sizes = to.sizes_data();
  std::int64_t* strides = to.strides_data();
  std::int64_t numel = 1;
  for (std::size_t d = 0; d < from.ndim(); ++d) {
    if (((dropped >> d) & 1) != 0) continue;
    numel *= from_sizes[d];
    *sizes++ = from_sizes[d];
    *strides++ = from_strides[d];
  }
  return numel;
}
inline std::uint64_t bit(std::size_t dim) { return std::uint64_t{1} << dim; }

}  // namespace

// Makes an alias, lets `shape(sizes and strides, numel, offset)` give it its geometry, and tells
// the base's gradient metadata and labels, if there are any, what `info(the view's sizes)` says.
// Inlined into each view function: a call costs a tenth of a view.
template <typename Info, typename Shape>
[[gnu::always_inline]] inline Tensor Tensor::make_view(Info&& info, Shape&& shape) const {
  detail::check_has_views(*this);
  return shaped_view(make_intrusive<TensorImpl>(*impl_, TensorImpl::Alias{}), info, shape);
}

// The same for a geometry of `ndim` dimensions that is written anew.
template <typename Info, typename Shape>
[[gnu::always_inline]] inline Tensor Tensor::make_view_of(std::size_t ndim, Info&& info,
                                                          Shape&& shape) const {
  detail::check_has_views(*this);
  return shaped_view(make_intrusive<TensorImpl>(*impl_, TensorImpl::Unshaped{}, ndim), info, shape);
}

template <typename Info, typename Shape>
[[gnu::always_inline]] inline Tensor Tensor::shaped_view(IntrusivePtr<TensorImpl> impl, Info& info,
                                                         Shape& shape) const {
  std::int64_t numel = impl_->numel();
  std::int64_t offset = impl_->storage_offset();
  shape(impl->shape_unchecked(), numel, offset);
  impl->finish_view(numel, offset);
  Tensor view(std::move(impl));
  if (impl_->is_followed()) [[unlikely]]
    detail::follow_view(*this, view, info(view.sizes()));
  return view;
}

Tensor Tensor::alias() const {
  return make_view([](IntList) { return ViewInfo{}; },
                   [](SizesAndStrides&, std::int64_t&, std::int64_t&) {});
}

Tensor Tensor::as_strided(IntList sizes, IntList strides, std::int64_t from) const {
  detail::check_has_views(*this);
  const std::int64_t elements = impl_->fitting_numel(sizes, strides, from);
  return make_view_of(
      sizes.size(),
      [&](IntList) {
        return ViewInfo{ViewInfo::Kind::kAsStrided, sizes, strides, {from, 0, 0}};
      },
      [&](SizesAndStrides& shape, std::int64_t& numel, std::int64_t& start) {
        write_geometry(shape, sizes, strides);
        numel = elements;
        start = from;
      });
}

Tensor Tensor::slice(std::int64_t dim, std::optional<std::int64_t> start,
                     std::optional<std::int64_t> end, std::int64_t step) const {
  return slice(dim, start.value_or(0), end.value_or(INT64_MAX), step);
}

Tensor Tensor::slice(std::int64_t dim, std::int64_t start, std::int64_t end,
                     std::int64_t step) const {
  const std::size_t d = existing_dim(*this, dim, "slice");
  if (step <= 0)
    throw InvalidArgument(
        fmt::format("slice: step {} of shape {}; it must be 1 or more (flip() reverses)", step,
                    to_string(sizes())));
  const std::int64_t size = impl_->sizes_and_strides().size_at(d);
  const auto clamp = [size](std::int64_t i) {
    return std::clamp<std::int64_t>(i < 0 ? i + size : i, 0, size);
  };
  const std::int64_t first = clamp(start);
  const std::int64_t last = std::max(clamp(end), first);
  const std::int64_t reach = last - first;  // division is dear: not for the usual step
  const std::int64_t length = step == 1 ? reach : reach / step + (reach % step != 0 ? 1 : 0);
  return make_view(
      [&](IntList) {
        const auto along = static_cast<std::int64_t>(d);
        return ViewInfo{ViewInfo::Kind::kSlice, {}, {}, {along, first, step, start, end}};
      },
      [&](SizesAndStrides& shape, std::int64_t& numel, std::int64_t& offset) {
        offset += first * shape.stride_at(d);
        if (step != 1) shape.stride_at(d) *= step;
        shape.size_at(d) = length;
        numel = numel_of(shape.sizes());
      });
}

Tensor Tensor::narrow(std::int64_t dim, std::int64_t start, std::int64_t length) const {
  const std::size_t d = existing_dim(*this, dim, "narrow");
  const std::int64_t size = sizes()[d];
  const std::int64_t first = start < 0 ? start + size : start;
  if (first < 0 || length < 0 || first > size || length > size - first)
    throw InvalidArgument(
        fmt::format("narrow: {} elements from {} of dimension {} do not lie in shape {}", length,
                    start, dim, to_string(sizes())));
  return slice(static_cast<std::int64_t>(d), first, first + length);
}

Tensor Tensor::select(std::int64_t dim, std::int64_t index) const {
  const std::size_t d = existing_dim(*this, dim, "select");
  const SizesAndStrides& old = impl_->sizes_and_strides();
  const std::int64_t size = old.size_at(d);
  const std::int64_t i = index < 0 ? index + size : index;
  if (i < 0 || i >= size)
    throw InvalidArgument(fmt::format("select: index {} of dimension {} of shape {}", index, dim,
                                      to_string(sizes())));
  return make_view_of(
      old.ndim() - 1,
      [&](IntList) {
        return ViewInfo{ViewInfo::Kind::kSelect, {}, {}, {static_cast<std::int64_t>(d), i, 0}};
      },
      [&](SizesAndStrides& shape, std::int64_t& numel, std::int64_t& offset) {
        offset += i * old.stride_at(d);
        numel = write_without(shape, old, bit(d));
      });
}

Tensor Tensor::transpose(std::int64_t dim0, std::int64_t dim1) const {
  if (layout() != Layout::kStrided) [[unlikely]]
    return transpose_sparse(*this, dim0, dim1);
  const std::size_t a = as_index(wrap_dim(dim0, dim(), "transpose"));
  const std::size_t b = as_index(wrap_dim(dim1, dim(), "transpose"));
  if (a == b) return alias();
  const auto swap = [&](SizesAndStrides& shape, std::int64_t&, std::int64_t&) {
    std::swap(shape.size_at(a), shape.size_at(b));
    std::swap(shape.stride_at(a), shape.stride_at(b));
  };
  if (!impl_->is_followed()) [[likely]]
    return make_view([](IntList) { return ViewInfo{}; }, swap);
  DimVector order(as_index(dim()));
  for (std::size_t d = 0; d < order.size(); ++d) order[d] = static_cast<std::int64_t>(d);
  std::swap(order[a], order[b]);
  return make_view([&](IntList) { return ViewInfo{ViewInfo::Kind::kPermute, order}; }, swap);
}

Tensor Tensor::t() const {
  if (dim() > 2)
    throw InvalidArgument(
        fmt::format("t: shape {} has more than two dimensions; use transpose", to_string(sizes())));
  return dim() < 2 ? alias() : transpose(0, 1);
}

Tensor Tensor::permute(IntList order) const {
  const std::size_t ndim = as_index(dim());
  const auto refuse = [&] {
    return InvalidArgument(fmt::format("permute: {} is no order of the dimensions of shape {}",
                                       to_string(order), to_string(sizes())));
  };
  if (order.size() != ndim) throw refuse();
  std::array<std::int64_t, kMaxDims> wrapped;
  std::uint64_t seen = 0;
  for (std::size_t d = 0; d < ndim; ++d) {
    const std::int64_t source = order[d] < 0 ? order[d] + dim() : order[d];
    if (source < 0 || source >= dim() || ((seen >> source) & 1) != 0) throw refuse();
    seen |= std::uint64_t{1} << source;
    wrapped[d] = source;
  }
  const SizesAndStrides& old = impl_->sizes_and_strides();
  return make_view(
      [&](IntList) {
        return ViewInfo{ViewInfo::Kind::kPermute, IntList(wrapped.data(), ndim)};
      },
      [&](SizesAndStrides& shape, std::int64_t&, std::int64_t&) {
        for (std::size_t d = 0; d < ndim; ++d) {
          shape.size_at(d) = old.size_at(as_index(wrapped[d]));
          shape.stride_at(d) = old.stride_at(as_index(wrapped[d]));
        }
      });
}

Tensor Tensor::movedim(IntList source, IntList destination) const {
  const std::size_t ndim = as_index(dim());
  const auto refuse = [&] {
    return InvalidArgument(
        fmt::format("movedim: {} to {} of shape {}: as many of each, and no dimension twice",
                    to_string(source), to_string(destination), to_string(sizes())));
  };
  if (source.size() != destination.size()) throw refuse();
  DimVector order(ndim, -1);
  std::uint64_t moved = 0;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const std::size_t from = as_index(wrap_dim(source[i], dim(), "movedim"));
    const std::size_t to = as_index(wrap_dim(destination[i], dim(), "movedim"));
    if (ndim == 0) return alias();
    if (order[to] != -1 || ((moved >> from) & 1) != 0) throw refuse();
    order[to] = static_cast<std::int64_t>(from);
    moved |= std::uint64_t{1} << from;
  }
  std::int64_t rest = 0;
  for (std::size_t d = 0; d < ndim; ++d) {
    if (order[d] != -1) continue;
    while (((moved >> rest) & 1) != 0) ++rest;
    order[d] = rest++;
  }
  return permute(order);
}

Tensor Tensor::unsqueeze(std::int64_t dim) const {
  const std::size_t ndim = as_index(this->dim());
  const std::size_t d = as_index(wrap_dim(dim, this->dim() + 1, "unsqueeze"));
  if (ndim == kMaxDims)
    throw InvalidArgument(fmt::format("unsqueeze: a tensor has at most {} dimensions", kMaxDims));
  return make_view(
      [&](IntList) {
        return ViewInfo{ViewInfo::Kind::kUnsqueeze, {}, {}, {static_cast<std::int64_t>(d), 0, 0}};
      },
      [&](SizesAndStrides& shape, std::int64_t&, std::int64_t&) {
        const std::int64_t step = d < ndim ? shape.size_at(d) * shape.stride_at(d) : 1;
        shape.resize(ndim + 1);
        std::int64_t* sizes = shape.sizes_data();
        std::int64_t* strides = shape.strides_data();
        for (std::size_t i = ndim; i > d; --i) {
          sizes[i] = sizes[i - 1];
          strides[i] = strides[i - 1];
        }
        sizes[d] = 1;
        strides[d] = step;
      });
}

Tensor Tensor::squeeze(std::int64_t dim) const {
  const std::size_t d = as_index(wrap_dim(dim, this->dim(), "squeeze"));
  if (this->dim() == 0 || sizes()[d] != 1) return alias();
  const SizesAndStrides& old = impl_->sizes_and_strides();
  return make_view_of(
      old.ndim() - 1,
      [&](IntList kept) {
        return ViewInfo{
            ViewInfo::Kind::kSqueeze, kept, {}, {static_cast<std::int64_t>(d), 1, 0}};
      },
      [&](SizesAndStrides& shape, std::int64_t&, std::int64_t&) {
        write_without(shape, old, bit(d));
      });
}

Tensor Tensor::squeeze() const {
  DimVector kept_sizes;
  DimVector kept_strides;
  for (std::size_t d = 0; d < as_index(dim()); ++d) {
    if (sizes()[d] == 1) continue;
    kept_sizes.push_back(sizes()[d]);
    kept_strides.push_back(strides()[d]);
  }
  return make_view_of(
      kept_sizes.size(),
      [](IntList kept) {
        return ViewInfo{ViewInfo::Kind::kSqueeze, kept};
      },
      [&](SizesAndStrides& shape, std::int64_t&, std::int64_t&) {
        write_geometry(shape, kept_sizes, kept_strides);
      });
}

Tensor Tensor::expand(IntList sizes) const {
  const SizesAndStrides& old = impl_->sizes_and_strides();
  const std::size_t ndim = old.ndim();
  const auto refuse = [&](std::size_t d) {
    return InvalidArgument(fmt::format(
        "expand: shape {} does not expand to {} (dimension {}): sizes must be equal, -1, or 1 in "
        "the source, and the elements countable",
        to_string(this->sizes()), to_string(sizes), d));
  };
  if (sizes.size() < ndim || sizes.size() > kMaxDims) [[unlikely]]
    throw refuse(0);
  const std::size_t added = sizes.size() - ndim;
  const Tensor view = make_view_of(
      sizes.size(),
      [](IntList expanded) {
        return ViewInfo{ViewInfo::Kind::kExpand, expanded};
      },
      [&](SizesAndStrides& shape, std::int64_t& numel, std::int64_t&) {
        const std::int64_t* old_sizes = old.sizes_data();
        const std::int64_t* old_strides = old.strides_data();
        std::int64_t* new_sizes = shape.sizes_data();
        std::int64_t* new_strides = shape.strides_data();
        bool overflow = false;
        numel = 1;
        for (std::size_t d = 0; d < sizes.size(); ++d) {
          const bool is_new = d < added;
          const std::int64_t had = is_new ? 1 : old_sizes[d - added];
          const std::int64_t wanted = sizes[d] == -1 && !is_new ? had : sizes[d];
          if (wanted < 0 || (wanted != had && had != 1)) [[unlikely]]
            throw refuse(d);
          new_sizes[d] = wanted;
          new_strides[d] = wanted == had && !is_new ? old_strides[d - added] : 0;
          overflow |= __builtin_mul_overflow(numel, wanted, &numel);
        }
        if (overflow) [[unlikely]]
          numel = checked_numel(shape.sizes());
      });
  if (is_meta() && !impl_->is_labelled()) [[unlikely]]
    detail::label_known(view);
  return view;
}

Tensor Tensor::diagonal(std::int64_t offset, std::int64_t dim1, std::int64_t dim2) const {
  const std::size_t a = existing_dim(*this, dim1, "diagonal");
  const std::size_t b = existing_dim(*this, dim2, "diagonal");
  if (a == b)
    throw InvalidArgument(fmt::format("diagonal: dimensions {} and {} of shape {} are the same",
                                      dim1, dim2, to_string(sizes())));
  const SizesAndStrides& old = impl_->sizes_and_strides();
  const std::int64_t step_a = old.stride_at(a);
  const std::int64_t step_b = old.stride_at(b);
  const std::int64_t reach = offset >= 0 ? std::min(old.size_at(a), old.size_at(b) - offset)
                                         : std::min(old.size_at(a) + offset, old.size_at(b));
  const std::int64_t length = std::max<std::int64_t>(0, reach);
  const std::int64_t skip = length == 0 ? 0 : offset >= 0 ? offset * step_b : -offset * step_a;
  return make_view_of(
      old.ndim() - 1,
      [&](IntList) {
        return ViewInfo{ViewInfo::Kind::kDiagonal,
                        {},
                        {},
                        {offset, static_cast<std::int64_t>(a), static_cast<std::int64_t>(b)}};
      },
      [&](SizesAndStrides& shape, std::int64_t& numel, std::int64_t& start) {
        numel = write_without(shape, old, bit(a) | bit(b)) * length;
        const std::size_t last = shape.ndim() - 1;
        shape.size_at(last) = length;
        shape.stride_at(last) = step_a + step_b;
        start += skip;
      });
}

Tensor Tensor::unfold(std::int64_t dim, std::int64_t size, std::int64_t step) const {
  const std::size_t d = existing_dim(*this, dim, "unfold");
  const std::size_t dim_count = as_index(this->dim());
  const std::int64_t old = sizes()[d];
  if (size < 0 || size > old || step <= 0)
    throw InvalidArgument(fmt::format(
        "unfold: windows of {} every {} along dimension {} of shape {}: the size may be 0 to {}, "
        "the step 1 or more",
        size, step, dim, to_string(sizes()), old));
  if (dim_count == kMaxDims)
    throw InvalidArgument(fmt::format("unfold: a tensor has at most {} dimensions", kMaxDims));
  const std::int64_t windows = (old - size) / step + 1;
  std::int64_t elements = 0;
  const std::int64_t others = old == 0 ? 0 : numel() / old;
  if (__builtin_mul_overflow(others * windows, size, &elements))
    throw InvalidArgument(
        fmt::format("unfold: {} windows of {} are too many elements", windows, size));
  return make_view(
      [&](IntList) {
        return ViewInfo{
            ViewInfo::Kind::kUnfold, {}, {}, {static_cast<std::int64_t>(d), size, step}};
      },
      [&](SizesAndStrides& shape, std::int64_t& numel, std::int64_t&) {
        shape.resize(dim_count + 1);
        shape.size_at(dim_count) = size;
        shape.stride_at(dim_count) = shape.stride_at(d);
        shape.size_at(d) = windows;
        shape.stride_at(d) *= step;
        numel = elements;
      });
}

}  // namespace tenon
