#include "tenon/tensor/indexing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tenon/base/error.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/copy_bytes.h"
#include "tenon/tensor/defined.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/quantized.h"
#include "tenon/tensor/strided_loop.h"

namespace tenon {
namespace {

using Indices = std::span<const TensorIndex>;

// What is left once numbers, slices, ellipsis and new axes are applied: a view, and for each of its
// dimensions an index tensor or none.
struct Applied {
  Tensor view;
  std::vector<Tensor> tensors;  // one for each dimension of the view; undefined: taken whole
  bool has_tensors = false;
};

std::int64_t dims_of(const TensorIndex& index) {
  switch (index.kind()) {
    case TensorIndex::Kind::kNumber:
    case TensorIndex::Kind::kSlice:
      return 1;
    case TensorIndex::Kind::kTensor:
      detail::check_defined("indexing", index.tensor());
      return index.tensor().dtype() == DType::kBool ? index.tensor().dim() : 1;
    default:
      return 0;
  }
}

std::int64_t dims_left_to_ellipsis(const Tensor& t, Indices indices) {
  std::int64_t taken = 0;
  int ellipses = 0;
  for (const TensorIndex& index : indices) {
    taken += dims_of(index);
    ellipses += index.kind() == TensorIndex::Kind::kEllipsis ? 1 : 0;
  }
  if (taken > t.dim() || ellipses > 1)
    throw InvalidArgument(
        fmt::format("indexing: {} indices and {} ellipses for shape {}; there may be as many "
                    "indices as dimensions, and one ellipsis",
                    taken, ellipses, to_string(t.sizes())));
  return t.dim() - taken;
}

void append_tensor(Applied& applied, const Tensor& index) {
  applied.has_tensors = true;
  if (index.dtype() == DType::kBool) {
    const std::size_t at = applied.tensors.size();
    if (index.dim() == 0) {  // one place of a new dimension, or none
      applied.view = applied.view.unsqueeze(static_cast<std::int64_t>(at));
      return append_tensor(applied, index.reshape({1}));
    }
    for (std::int64_t d = 0; d < index.dim(); ++d)
      if (index.size(d) != applied.view.size(static_cast<std::int64_t>(at) + d))
        throw InvalidArgument(
            fmt::format("indexing: a mask of shape {} at dimension {} of shape {}",
                        to_string(index.sizes()), at, to_string(applied.view.sizes())));
    for (Tensor& positions : nonzero_positions(index))
      applied.tensors.push_back(std::move(positions));
    return;
  }
  if (!is_integral(index.dtype()))
    throw InvalidArgument(fmt::format("indexing: by a tensor of {}; take integers or bool",
                                      dtype_name(index.dtype())));
  applied.tensors.push_back(to(index, DType::kI64));
}

Applied apply_views(const Tensor& t, Indices indices) {
  const std::int64_t rest = dims_left_to_ellipsis(t, indices);
  Applied applied{t, {}, false};
  for (const TensorIndex& index : indices) {
    const auto at = static_cast<std::int64_t>(applied.tensors.size());
    switch (index.kind()) {
      case TensorIndex::Kind::kNumber:
        applied.view = applied.view.select(at, index.number());
        break;
      case TensorIndex::Kind::kSlice: {
        const Slice& s = index.slice();
        if (s.start || s.stop || s.step != 1)
          applied.view = applied.view.slice(at, s.start, s.stop, s.step);
        applied.tensors.emplace_back();
        break;
      }
      case TensorIndex::Kind::kEllipsis:
        applied.tensors.resize(applied.tensors.size() + static_cast<std::size_t>(rest));
        break;
      case TensorIndex::Kind::kNewAxis:
        applied.view = applied.view.unsqueeze(at);
        applied.tensors.emplace_back();
        break;
      case TensorIndex::Kind::kTensor:
        append_tensor(applied, index.tensor());
        break;
    }
  }
  applied.tensors.resize(static_cast<std::size_t>(applied.view.dim()));
  return applied;
}

// The shape of a choice: which dimensions are chosen, where they go, what they become.
struct Choice {
  DimVector index_sizes;  // of the broadcast index tensors
  DimVector order;        // the view's dimensions, the chosen ones first
  std::size_t chosen = 0;
  std::size_t first = 0;  // where the index dimensions stand in the result
  DimVector rest_sizes;
};

Choice plan_choice(const Applied& applied) {
  Choice choice;
  DimVector rest;
  bool adjacent = true;
  std::size_t last = 0;
  for (std::size_t d = 0; d < applied.tensors.size(); ++d) {
    const Tensor& index = applied.tensors[d];
    if (!index.defined()) {
      rest.push_back(static_cast<std::int64_t>(d));
      choice.rest_sizes.push_back(applied.view.sizes()[d]);
      continue;
    }
    if (choice.chosen == 0)
      choice.first = d;
    else
      adjacent &= last + 1 == d;
    last = d;
    ++choice.chosen;
    choice.order.push_back(static_cast<std::int64_t>(d));
    choice.index_sizes = broadcast_sizes(choice.index_sizes, index.sizes(), "index tensors");
  }
  if (!adjacent) choice.first = 0;
  for (const std::int64_t d : rest) choice.order.push_back(d);
  return choice;
}

// The result's dimensions with those of the index first.
Tensor index_dims_first(const Tensor& result, const Choice& choice) {
  DimVector order;
  const std::size_t count = choice.index_sizes.size();
  for (std::size_t i = 0; i < count; ++i)
    order.push_back(static_cast<std::int64_t>(choice.first + i));
  for (std::size_t d = 0; d < static_cast<std::size_t>(result.dim()); ++d)
    if (d < choice.first || d >= choice.first + count)
      order.push_back(static_cast<std::int64_t>(d));
  return result.permute(order);
}

DimVector result_sizes(const Choice& choice) {
  DimVector sizes;
  for (std::size_t d = 0; d < choice.first; ++d) sizes.push_back(choice.rest_sizes[d]);
  for (const std::int64_t size : choice.index_sizes) sizes.push_back(size);
  for (std::size_t d = choice.first; d < choice.rest_sizes.size(); ++d)
    sizes.push_back(choice.rest_sizes[d]);
  return sizes;
}

// Walks the chosen places: row(dense side, chosen side, byte strides, length) for every piece.
// `dense` has the index dimensions first.
template <typename Row>
void walk_choice(const Tensor& dense, const Tensor& view, const Applied& applied,
                 const Choice& choice, Row&& row) {
  std::vector<Tensor> indices;
  for (std::size_t i = 0; i < choice.chosen; ++i)
    indices.push_back(applied.tensors[static_cast<std::size_t>(choice.order[i])]);
  const Tensor ordered = view.detach().permute(choice.order);  // not recorded
  const std::vector<std::int64_t> offsets =
      detail::chosen_offsets(ordered, indices, choice.index_sizes);
  const auto item = static_cast<std::int64_t>(view.item_size());
  const std::size_t count = choice.index_sizes.size();
  const StridedLoop::Operand operands[2] = {
      {dense.data_ptr(), choice.rest_sizes,
       IntList(dense.strides().data() + count, choice.rest_sizes.size()), item},
      {const_cast<void*>(view.const_data_ptr()), choice.rest_sizes,
       IntList(ordered.strides().data() + choice.chosen, choice.rest_sizes.size()), item}};
  const StridedLoop rest(choice.rest_sizes, operands, 2);
  DimVector at(count, 0);
  for (const std::int64_t offset : offsets) {
    std::int64_t dense_offset = 0;
    for (std::size_t d = 0; d < count; ++d) dense_offset += at[d] * dense.strides()[d];
    rest.run(0, rest.numel(), [&](char** data, const std::int64_t* strides, std::int64_t length) {
      row(data[0] + dense_offset * item, data[1] + offset * item, strides, length);
    });
    for (std::size_t d = count; d-- > 0;) {
      if (++at[d] < choice.index_sizes[d]) break;
      at[d] = 0;
    }
  }
}

// Steps in bytes.
void copy_items(char* to, std::int64_t to_step, const char* from, std::int64_t from_step,
                std::int64_t length, std::size_t item) {
  const auto dense = static_cast<std::int64_t>(item);
  if (to_step == dense && from_step == dense) {
    detail::copy_bytes(to, from, static_cast<std::size_t>(length) * item);
    return;
  }
  for (std::int64_t i = 0; i < length; ++i)
    std::memcpy(to + i * to_step, from + i * from_step, item);
}

template <typename T>
void add_row(char* target, const char* source, std::int64_t target_stride,
             std::int64_t source_stride, std::int64_t length) {
  for (std::int64_t i = 0; i < length; ++i) {
    T& to = *reinterpret_cast<T*>(target + i * target_stride);
    const T from = *reinterpret_cast<const T*>(source + i * source_stride);
    if constexpr (std::is_same_v<T, bool>)
      to = to || from;
    else
      to = static_cast<T>(to + from);
  }
}

}  // namespace

std::vector<Tensor> nonzero_positions(const Tensor& mask) {
  detail::check_defined("nonzero_positions", mask);
  const Tensor dense = contiguous(to_host(mask));
  const bool* set = dense.const_data_ptr<bool>();
  const std::int64_t count = set == nullptr ? 0 : std::count(set, set + dense.numel(), true);
  std::vector<Tensor> positions;
  std::vector<std::int64_t*> out;
  for (std::int64_t d = 0; d < mask.dim(); ++d) {
    positions.push_back(empty({count}, DType::kI64));
    out.push_back(positions.back().data_ptr<std::int64_t>());
  }
  if (count == 0 || out.empty()) return positions;
  // By stretches of rows: the last dimension's places without a branch, which random masks would
  // mispredict, and then, for all of a stretch, where its row is.
  constexpr std::int64_t kStretch = 1024;
  const std::size_t last = out.size() - 1;
  const std::int64_t length = mask.sizes()[last];
  std::int64_t places[kStretch];
  std::int64_t found = 0;
  for (std::int64_t row = 0; found < count; ++row)
    for (std::int64_t begin = 0; begin < length; begin += kStretch) {
      const std::int64_t end = std::min(length, begin + kStretch);
      std::int64_t here = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        places[here] = i;
        here += *set++ ? 1 : 0;
      }
      std::copy_n(places, here, out[last] + found);
      std::int64_t rest = row;
      for (std::size_t d = last; d-- > 0; rest /= mask.sizes()[d])
        std::fill_n(out[d] + found, here, rest % mask.sizes()[d]);
      found += here;
    }
  return positions;
}

std::vector<std::int64_t> detail::chosen_offsets(const Tensor& source,
                                                 std::span<const Tensor> indices,
                                                 IntList index_sizes) {
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(numel_of(index_sizes)), 0);
  for (std::size_t d = 0; d < indices.size(); ++d) {
    const Tensor index = contiguous(to_host(indices[d]).expand(index_sizes));
    const std::int64_t* values = index.const_data_ptr<std::int64_t>();
    const std::int64_t size = source.sizes()[d];
    const std::int64_t stride = source.strides()[d];
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      const std::int64_t value = values[i] < 0 ? values[i] + size : values[i];
      if (value < 0 || value >= size) [[unlikely]]
        throw InvalidArgument(fmt::format("indexing: index {} for a dimension of size {}, shape {}",
                                          values[i], size, to_string(source.sizes())));
      offsets[i] += value * stride;
    }
  }
  return offsets;
}

Tensor Tensor::operator[](std::initializer_list<TensorIndex> indices) const {
  return index(std::span(indices.begin(), indices.size()));
}

const Tensor& Tensor::index_put_(std::initializer_list<TensorIndex> indices, const Tensor& values,
                                 bool accumulate) const {
  return index_put_(std::span(indices.begin(), indices.size()), values, accumulate);
}

Tensor Tensor::index(Indices indices) const {
  const Applied applied = apply_views(*this, indices);
  if (!applied.has_tensors) return applied.view.is_same(*this) ? alias() : applied.view;
  const HostTurn host("indexing by tensors", applied.view.device());
  const Choice choice = plan_choice(applied);
  Tensor result = empty(result_sizes(choice), dtype(), device());
  const std::size_t item = item_size();
  if (result.numel() > 0 && !result.is_meta())
    walk_choice(
        index_dims_first(result, choice), applied.view, applied, choice,
        [item](char* dense, const char* chosen, const std::int64_t* strides, std::int64_t length) {
          copy_items(dense, strides[0], chosen, strides[1], length, item);
        });
  if (is_quantized(result) && !is_quantized_per_channel(applied.view))
    detail::share_quantizer(result, applied.view);
  if (AutogradMetaInterface* meta = applied.view.impl()->autograd_meta())
    meta->indexed(applied.view, result, applied.tensors, static_cast<std::int64_t>(choice.first));
  return result;
}

namespace {

// Where the chosen elements are, those of `dense`: instead of what is there, or added to it.
void put_chosen(const Tensor& dense, const Applied& applied, const Choice& choice,
                bool accumulate) {
  const std::size_t item = dense.item_size();
  if (!accumulate)
    return walk_choice(
        dense, applied.view, applied, choice,
        [item](const char* from, char* chosen, const std::int64_t* strides, std::int64_t length) {
          copy_items(chosen, strides[1], from, strides[0], length, item);
        });
  visit_dtype(dense.dtype(), [&]<typename T>() {
    walk_choice(dense, applied.view, applied, choice,
                [](const char* from, char* chosen, const std::int64_t* strides,
                   std::int64_t length) {
                  add_row<T>(chosen, from, strides[1], strides[0], length);
                });
  });
}

// Values may have more dimensions than their place, of one element each.
Tensor without_leading_ones(Tensor values, std::int64_t dims) {
  while (values.dim() > dims && values.size(0) == 1) values = values.select(0, 0);
  return values;
}

}  // namespace

const Tensor& Tensor::index_put_(Indices indices, const Tensor& given, bool accumulate) const {
  detail::check_defined("index_put_", given);
  // Views that are written through must know where they come from. Views that exist do not know.
  if (given.impl()->autograd_meta() != nullptr && impl_->autograd_meta() == nullptr &&
      storage().use_count() == 1 && !is_inference())
    impl_->ensure_autograd_meta();
  Applied applied = apply_views(*this, indices);
  if (!applied.has_tensors && !accumulate) {
    copy_(applied.view, without_leading_ones(given, applied.view.dim()));
    return *this;
  }
  const HostTurn host("writing by indices", applied.view.device());
  Choice choice = plan_choice(applied);
  const DimVector sizes = result_sizes(choice);
  const Tensor values = without_leading_ones(given, static_cast<std::int64_t>(sizes.size()));
  const Tensor ready = to(values.detach(), dtype()).expand(sizes);
  AutogradMetaInterface* meta = applied.view.impl()->autograd_meta();
  if (meta == nullptr) meta = values.impl()->autograd_meta();
  if (meta != nullptr) meta->check_writable(applied.view, values);
  if (ready.numel() > 0 && !is_meta()) {
    void* const writable = applied.view.data_ptr();  // shared bytes become the tensor's own
    static_cast<void>(writable);
    const Tensor dense =
        index_dims_first(ready.is_alias_of(*this) ? clone(ready) : contiguous(ready), choice);
    put_chosen(dense, applied, choice, accumulate);
  }
  impl_->bump_version();
  if (meta != nullptr)
    meta->index_written(applied.view, applied.tensors, values,
                        static_cast<std::int64_t>(choice.first), accumulate);
  return *this;
}

}  // namespace tenon
