// The geometry of convolutions for oneDNN, and of the parts that they are cut into.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "tenon/base/hash.h"
#include "tenon/ops/conv.h"
#include "tenon/ops/kernels/cpu/onednn_engine.h"

namespace tenon::ops::cpu::onednn {

using dnnl::memory;
using Tag = memory::format_tag;

inline constexpr memory::data_type kF32 = memory::data_type::f32;

inline memory::data_type type_of(const Tensor& t) {
  return t.dtype() == DType::kBF16 ? memory::data_type::bf16 : kF32;
}

// Channels lie side by side.
inline bool has_channels_last(const Tensor& t) {
  return !t.is_contiguous() && t.is_contiguous(MemoryFormat::kChannelsLast);
}

// Those of a dense tensor, also where a dimension of size 1 has others.
inline memory::dims strides_of(const Tensor& t) {
  const MemoryFormat format =
      has_channels_last(t) ? MemoryFormat::kChannelsLast : MemoryFormat::kContiguous;
  const DimVector strides = strides_for(t.sizes(), format);
  return {strides.begin(), strides.end()};
}

// Some images of a convolution, or some rows of an image's result.
struct Part {
  std::int64_t image, images, row, rows;
};

// The geometry of a convolution, or of a part of it.
struct ConvShape {
  ConvShape(const Tensor& a, const Tensor& weight, const Tensor& out, const ConvOptions& o)
      : source_type(type_of(a)),
        target_type(type_of(out)),
        source(a.sizes().begin(), a.sizes().end()),
        filter(weight.sizes().begin(), weight.sizes().end()),
        target(out.sizes().begin(), out.sizes().end()),
        source_strides(strides_of(a)),
        target_strides(strides_of(out)),
        filter_strides(strides_of(weight)),
        is_last(has_channels_last(a) || has_channels_last(out)),
        is_grouped(o.groups > 1),
        stride{o.stride.height, o.stride.width},
        padding{o.padding.height, o.padding.width},
        padding_after(padding),
        // oneDNN counts the elements between two taps.
        dilation{o.dilation.height - 1, o.dilation.width - 1},
        reach((weight.size(2) - 1) * o.dilation.height + 1) {
    if (!is_grouped) return;
    filter[0] /= o.groups;
    filter.insert(filter.begin(), o.groups);
    filter_strides.insert(filter_strides.begin(), filter[1] * filter_strides[0]);
  }
  ConvShape of(const Part& part) const {
    ConvShape other = *this;
    other.source[0] = other.target[0] = part.images;
    if (part.rows == target[2]) return other;
    const std::int64_t begin = part.row * stride[0] - padding[0];
    const std::int64_t end = begin + (part.rows - 1) * stride[0] + reach;
    other.target[2] = part.rows;
    other.source[2] = std::min(end, source[2]) - std::max<std::int64_t>(begin, 0);
    other.padding[0] = std::max<std::int64_t>(-begin, 0);
    other.padding_after[0] = std::max<std::int64_t>(end - source[2], 0);
    return other;
  }
  // Where a part's elements begin.
  char* source_at(const Tensor& whole, const Part& part) const {
    const std::int64_t row = std::max<std::int64_t>(part.row * stride[0] - padding[0], 0);
    return at(whole, part.image * source_strides[0] + row * source_strides[2]);
  }
  char* target_at(const Tensor& whole, const Part& part) const {
    return at(whole, part.image * target_strides[0] + part.row * target_strides[2]);
  }
  static char* at(const Tensor& whole, std::int64_t element) {
    return static_cast<char*>(const_cast<void*>(whole.const_data_ptr())) +
           element * static_cast<std::int64_t>(whole.item_size());
  }
  // As our tensors have them.
  memory::desc source_desc() const { return {source, source_type, source_strides}; }
  memory::desc target_desc() const { return {target, target_type, target_strides}; }
  memory::desc filter_desc(memory::data_type of) const { return {filter, of, filter_strides}; }
  memory::desc bias_desc(memory::data_type of) const { return {{target[1]}, of, Tag::x}; }
  // As a primitive may want them.
  memory::desc source_in(Tag tag) const { return {source, source_type, tag}; }
  memory::desc target_in(Tag tag) const { return {target, target_type, tag}; }
  memory::desc any_filter(memory::data_type of) const { return {filter, of, Tag::any}; }
  std::int64_t images() const { return source[0]; }
  bool operator==(const ConvShape&) const = default;
  std::uint64_t hash() const {
    RunningHash hash;
    hash.add(static_cast<std::uint64_t>(source_type));
    for (const memory::dims* sizes :
         {&source, &filter, &target, &stride, &padding, &dilation, &source_strides})
      for (const std::int64_t size : *sizes) hash.add(static_cast<std::uint64_t>(size));
    return hash.value();
  }

  memory::data_type source_type, target_type;
  memory::dims source, filter, target;
  memory::dims source_strides, target_strides;  // of the whole
  memory::dims filter_strides;
  bool is_last, is_grouped;
  memory::dims stride, padding, padding_after, dilation;
  std::int64_t reach;  // rows from a filter's first tap to its last
};

// Parts of `images` images each, or of `rows` rows of one image's result.
inline std::vector<Part> cut(const ConvShape& whole, std::int64_t images, std::int64_t rows) {
  std::vector<Part> parts;
  for (std::int64_t image = 0; image < whole.images(); image += images)
    for (std::int64_t row = 0; row < whole.target[2]; row += rows)
      parts.push_back({image, std::min(images, whole.images() - image), row,
                       std::min(rows, whole.target[2] - row)});
  return parts;
}

// Eight parts or so: enough to even out threads, small enough to stay in the caches.
inline std::int64_t part_length(std::int64_t images) { return (images + 7) / 8; }

// How many rows of the result a part has. Where there are few images, a power of two of parts, so
// that two and four threads get as much each; enough work to pay for another look at the filter,
// and enough rows, since neighbours read some twice.
inline std::int64_t part_rows(const ConvShape& s, std::int64_t filter_elements) {
  constexpr std::int64_t kFewImages = 4, kMostParts = 16, kLeastWork = 16 << 20;
  const std::int64_t rows = s.target[2];
  if (s.images() >= kFewImages || s.padding[0] >= s.reach) return rows;
  const std::int64_t work = rows * s.target[3] * filter_elements;
  std::int64_t parts = 1;
  while (2 * parts * s.images() <= kMostParts && 2 * parts * kLeastWork <= work &&
         2 * parts * s.reach <= rows)
    parts *= 2;
  const std::int64_t length = (rows + parts - 1) / parts;
  if (parts == 1) return rows;
  // The copies between layouts are much faster where a part's places fill whole vectors.
  constexpr std::int64_t kVector = 16;
  const std::int64_t multiple = kVector / std::gcd(kVector, s.target[3]);
  return multiple < length ? (length + multiple - 1) / multiple * multiple : length;
}

}  // namespace tenon::ops::cpu::onednn
