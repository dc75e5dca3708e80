// The functions of Tensor that regroup dimensions, and those that cut a tensor into several.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tenon/base/error.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/dim_labels.h"
#include "tenon/tensor/sparse_parts.h"
#include "tenon/tensor/tensor.h"

namespace tenon {
namespace {

void check_ndim(IntList sizes) {
  if (sizes.size() > kMaxDims) [[unlikely]]
    throw InvalidArgument(
        fmt::format("{} dimensions: a tensor has at most {}", sizes.size(), kMaxDims));
}

}  // namespace

// Requires: the sizes have as many elements. Undefined where it would have to copy.
Tensor Tensor::try_view(IntList wanted) const {
  detail::check_has_views(*this);
  auto impl = make_intrusive<TensorImpl>(*impl_, TensorImpl::Unshaped{}, wanted.size());
  SizesAndStrides& shape = impl->shape_unchecked();
  std::int64_t* const sizes_of_view = shape.sizes_data();
  for (std::size_t d = 0; d < wanted.size(); ++d) sizes_of_view[d] = wanted[d];
  if (is_contiguous())
    fill_contiguous_strides(wanted, shape.strides_data());
  else if (!view_strides(sizes(), strides(), wanted, shape.strides_data()))
    return {};
  impl->finish_view(numel(), storage_offset());
  Tensor view(std::move(impl));
  if (impl_->is_followed()) [[unlikely]]
    detail::follow_view(*this, view, {ViewInfo::Kind::kReshape, wanted});
  return view;
}

Tensor Tensor::view(IntList sizes) const {
  check_ndim(sizes);
  std::array<std::int64_t, kMaxDims> inferred;
  infer_sizes(sizes, numel(), inferred.data());
  const IntList wanted(inferred.data(), sizes.size());
  Tensor view = try_view(wanted);
  if (!view.defined()) [[unlikely]]
    throw InvalidArgument(fmt::format(
        "view: shape {} with strides {} cannot be viewed as {} without a copy; use reshape",
        to_string(this->sizes()), to_string(strides()), to_string(wanted)));
  return view;
}

Tensor Tensor::reshape(IntList sizes) const {
  check_ndim(sizes);
  std::array<std::int64_t, kMaxDims> inferred;
  infer_sizes(sizes, numel(), inferred.data());
  const IntList wanted(inferred.data(), sizes.size());
  Tensor view = try_view(wanted);
  return view.defined() ? view : clone(*this, MemoryFormat::kContiguous).view(wanted);
}

Tensor Tensor::view_dtype(DType wanted) const {
  detail::check_has_views(*this, "view_dtype");
  const auto old_bytes = static_cast<std::int64_t>(item_size());
  const auto new_bytes = static_cast<std::int64_t>(tenon::item_size(wanted));
  DimVector sizes = this->sizes().to_vector();
  DimVector strides = this->strides().to_vector();
  std::int64_t offset = storage_offset();
  if (old_bytes != new_bytes) {
    const std::int64_t larger = std::max(old_bytes, new_bytes) / std::min(old_bytes, new_bytes);
    const bool grows = new_bytes > old_bytes;  // fewer, larger elements
    bool fits = !sizes.empty() && strides.back() == 1;
    if (fits && grows) {
      fits = sizes.back() % larger == 0 && offset % larger == 0;
      for (std::size_t d = 0; d + 1 < strides.size(); ++d) fits &= strides[d] % larger == 0;
    }
    if (!fits)
      throw InvalidArgument(fmt::format(
          "view_dtype: shape {} with strides {} and offset {} of {} cannot be seen as {}: the last "
          "dimension must be dense and the larger items must fit",
          to_string(sizes), to_string(strides), offset, dtype_name(dtype()), dtype_name(wanted)));
    const auto scale = [&](std::int64_t n) { return grows ? n / larger : n * larger; };
    for (std::size_t d = 0; d + 1 < strides.size(); ++d) strides[d] = scale(strides[d]);
    sizes.back() = scale(sizes.back());
    offset = scale(offset);
  }
  auto impl = make_intrusive<TensorImpl>(*impl_, TensorImpl::Alias{});
  impl->set_dtype_unchecked(wanted);
  impl->shape_unchecked().set(sizes, strides);
  impl->finish_view(checked_numel(sizes), offset);
  Tensor view(std::move(impl));
  if (impl_->is_labelled()) [[unlikely]] {
    Labels labels = detail::labels_of(*this);
    if (!labels.empty())
      labels.back().size = labels.back().size * SymInt(old_bytes) / SymInt(new_bytes);
    detail::give_labels("view_dtype", view, labels, false);
  }
  return view;
}

Tensor Tensor::flatten(std::int64_t start_dim, std::int64_t end_dim) const {
  const std::size_t first = as_index(wrap_dim(start_dim, dim(), "flatten"));
  const std::size_t last = as_index(wrap_dim(end_dim, dim(), "flatten"));
  if (first > last)
    throw InvalidArgument(fmt::format("flatten: dimension {} comes after {} in shape {}", start_dim,
                                      end_dim, to_string(sizes())));
  if (dim() == 0) return reshape({1});
  if (first == last) return alias();
  DimVector joined;
  for (std::size_t d = 0; d < first; ++d) joined.push_back(sizes()[d]);
  joined.push_back(numel_of(IntList(sizes().data() + first, last - first + 1)));
  for (std::size_t d = last + 1; d < as_index(dim()); ++d) joined.push_back(sizes()[d]);
  return reshape(joined);
}

Tensor Tensor::unflatten(std::int64_t dim, IntList sizes) const {
  const std::size_t d = as_index(wrap_dim(dim, this->dim(), "unflatten"));
  const DimVector parts = infer_sizes(sizes, size(dim));
  DimVector wanted;
  for (std::size_t i = 0; i < as_index(this->dim()); ++i) {
    if (i != d)
      wanted.push_back(this->sizes()[i]);
    else
      for (const std::int64_t part : parts) wanted.push_back(part);
  }
  return view(wanted);
}

namespace {

// Views that one call makes, and how each was made: gradients and labels follow all at once.
class Pieces {
 public:
  explicit Pieces(const Tensor& base)
      : base_(base), plain_(make_intrusive<TensorImpl>(*base.impl(), TensorImpl::Alias{})) {}

  void add(ViewInfo::Kind kind, std::int64_t dim, std::int64_t at, std::int64_t length) {
    const bool slices = kind == ViewInfo::Kind::kSlice;
    views_.push_back(slices ? plain_.narrow(dim, at, length) : plain_.select(dim, at));
    if (base_.impl()->is_followed()) [[unlikely]]
      infos_.push_back({kind, {}, {}, {dim, at, slices ? 1 : 0, at, at + length}});
  }
  std::vector<Tensor> take() {
    if (!infos_.empty()) [[unlikely]]
      detail::follow_views(base_, views_, infos_);
    return std::move(views_);
  }

 private:
  const Tensor& base_;
  const Tensor plain_;  // has no metadata that follow
  std::vector<Tensor> views_;
  std::vector<ViewInfo> infos_;
};

std::int64_t cut_dim(const Tensor& t, std::int64_t dim, const char* what) {
  if (t.dim() == 0)
    throw InvalidArgument(fmt::format("{}: a 0-d tensor has no dimension {}", what, dim));
  detail::check_has_views(t, what);
  return wrap_dim(dim, t.dim(), what);
}

}  // namespace

std::vector<Tensor> Tensor::split(std::int64_t split_size, std::int64_t dim) const {
  const std::int64_t d = cut_dim(*this, dim, "split");
  const std::int64_t length = size(d);
  if (split_size < 0 || (split_size == 0 && length != 0))
    throw InvalidArgument(fmt::format("split: pieces of {} from dimension {} of shape {}",
                                      split_size, dim, to_string(sizes())));
  Pieces pieces(*this);
  std::int64_t start = 0;
  do {
    const std::int64_t piece = std::min(split_size, length - start);
    pieces.add(ViewInfo::Kind::kSlice, d, start, piece);
    start += piece;
  } while (start < length);
  return pieces.take();
}

std::vector<Tensor> Tensor::split(IntList split_sizes, std::int64_t dim) const {
  const std::int64_t d = cut_dim(*this, dim, "split");
  std::int64_t sum = 0;
  for (const std::int64_t piece : split_sizes)
    if (__builtin_add_overflow(sum, piece, &sum)) sum = -1;
  if (sum != size(d))
    throw InvalidArgument(
        fmt::format("split: the pieces {} add up to {}, dimension {} of shape {} has {}",
                    to_string(split_sizes), sum, dim, to_string(sizes()), size(d)));
  Pieces pieces(*this);
  std::int64_t start = 0;
  for (const std::int64_t piece : split_sizes) {
    pieces.add(ViewInfo::Kind::kSlice, d, start, piece);
    start += piece;
  }
  return pieces.take();
}

std::vector<Tensor> Tensor::tensor_split(std::int64_t sections, std::int64_t dim) const {
  if (sections <= 0)
    throw InvalidArgument(
        fmt::format("tensor_split: {} sections; there must be at least 1", sections));
  const std::int64_t length = size(cut_dim(*this, dim, "tensor_split"));
  DimVector sizes;
  for (std::int64_t i = 0; i < sections; ++i)
    sizes.push_back(length / sections + (i < length % sections ? 1 : 0));
  return split(sizes, dim);
}

std::vector<Tensor> Tensor::tensor_split(IntList indices, std::int64_t dim) const {
  const std::int64_t d = cut_dim(*this, dim, "tensor_split");
  const std::int64_t length = size(d);
  Pieces pieces(*this);
  std::int64_t start = 0;
  for (std::size_t i = 0; i <= indices.size(); ++i) {
    const std::int64_t index = i < indices.size() ? indices[i] : length;
    const std::int64_t wrapped = index < 0 ? index + length : index;
    const std::int64_t end = std::clamp<std::int64_t>(wrapped, 0, length);
    pieces.add(ViewInfo::Kind::kSlice, d, start, std::max<std::int64_t>(end - start, 0));
    start = end;
  }
  return pieces.take();
}

std::vector<Tensor> Tensor::chunk(std::int64_t chunks, std::int64_t dim) const {
  if (chunks <= 0)
    throw InvalidArgument(fmt::format("chunk: {} chunks; there must be at least 1", chunks));
  const std::int64_t length = size(cut_dim(*this, dim, "chunk"));
  // As many pieces as asked for, even where each is empty.
  if (length == 0) return split(DimVector(as_index(chunks), 0), dim);
  return split(length / chunks + (length % chunks > 0 ? 1 : 0), dim);
}

std::vector<Tensor> Tensor::unbind(std::int64_t dim) const {
  const std::int64_t d = cut_dim(*this, dim, "unbind");
  Pieces rows(*this);
  for (std::int64_t i = 0; i < size(d); ++i) rows.add(ViewInfo::Kind::kSelect, d, i, 1);
  return rows.take();
}

}  // namespace tenon
