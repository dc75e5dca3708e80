#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/attention_tiles.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
#include "tenon/ops/kernels/cpu/vector_loop-inl.h"
#include "tenon/ops/kernels/cpu/elementary-inl.h"
#include "tenon/ops/kernels/cpu/tile_product-inl.h"
// clang-format on

#include <algorithm>
#include <limits>
#include <type_traits>

#include "tenon/ops/kernels/cpu/attention_tiles.h"
#include "tenon/tensor/half_rows.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

namespace hn = hwy::HWY_NAMESPACE;

using cpu::AttentionHead;
using cpu::AttentionRows;

constexpr std::int64_t kTile = cpu::kAttentionTile;
constexpr std::int64_t kTileSize = kTile * kTile;

// 0 far below 0; NaN of NaN. Arguments are 0 at most, but for rows without a softmax.
template <class D, class V>
HWY_INLINE V shares_of(D d, V x) {
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
  } else {
    const auto seen = hn::Ge(x, hn::Set(d, -kShortExpLimit));
    return hn::IfThenElse(hn::IsNaN(x), x, hn::IfThenElseZero(seen, short_exp(d, x)));
  }
}

// Rows of T that are whole vectors, with zeros behind their elements.
template <typename T>
struct Rows {
  const T* data;
  std::int64_t stride;
};
template <typename T>
std::int64_t padded(std::int64_t size) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  return (size + lanes - 1) / lanes * lanes;
}

template <typename T>
void copy_row(T* to, const AttentionRows& from, std::int64_t row, std::int64_t size) {
  const std::int64_t at = row * from.stride;
  if constexpr (std::is_same_v<T, float>) {
    if (from.dtype == DType::kBF16)
      return tenon::detail::convert_dense(to, static_cast<const BFloat16*>(from.data) + at, size);
    if (from.dtype == DType::kF16)
      return tenon::detail::convert_dense(to, static_cast<const Half*>(from.data) + at, size);
  }
  std::copy_n(static_cast<const T*>(from.data) + at, size, to);
}

// Whether rows are read where they lie.
template <typename T>
bool is_in_place(const AttentionRows& rows, std::int64_t size) {
  const bool is_same = rows.dtype == (sizeof(T) == 8 ? DType::kF64 : DType::kF32);
  return is_same && rows.stride == size && padded<T>(size) == size;
}
// Rows from `first` on: in place, or those that rows_of copied before.
template <typename T>
Rows<T> rows_again(const AttentionRows& from, std::int64_t first, std::int64_t size,
                   const T* copies) {
  if (is_in_place<T>(from, size)) return {static_cast<const T*>(from.data) + first * size, size};
  return {copies, padded<T>(size)};
}
template <typename T>
Rows<T> rows_of(const AttentionRows& from, std::int64_t first, std::int64_t count,
                std::int64_t size, T* copies) {
  const std::int64_t width = padded<T>(size);
  for (std::int64_t i = 0; i < count && !is_in_place<T>(from, size); ++i) {
    copy_row(copies + i * width, from, first + i, size);
    std::fill(copies + i * width + size, copies + (i + 1) * width, T(0));
  }
  return rows_again(from, first, size, copies);
}

// to[e][i] = rows[i][e] * scale, with zeros for rows that are not there.
template <typename T>
void turn(T* to, const Rows<T>& rows, std::int64_t count, std::int64_t size, T scale) {
  for (std::int64_t e = 0; e < size; ++e) {
    T* const line = to + e * kTile;
    for (std::int64_t i = 0; i < count; ++i) line[i] = rows.data[i * rows.stride + e] * scale;
    std::fill(line + count, line + kTile, T(0));
  }
}

// The scratch memory of a block; what only the gradient needs comes last.
template <typename T>
class Room {
 public:
  Room(const AttentionHead& head, char* memory) : base_(reinterpret_cast<T*>(memory)) {
    const std::int64_t size = padded<T>(head.size), value_size = padded<T>(head.value_size);
    largest = take(kTile), sum = take(kTile), dot = take(kTile), factor = take(kTile);
    mask = take(kTileSize), scores = take(kTileSize);
    turned_q = take(kTile * size), q = take(kTile * size), k = take(kTile * size);
    v = take(kTile * value_size), out = take(kTile * std::max(size, value_size));
    forward_elements = elements;
    const std::int64_t tiles = cpu::attention_tiles(head.keys);
    turned_gradient = take(kTile * value_size), gradient = take(kTile * value_size);
    tile_largest = take(tiles * kTile);
    shares = take(tiles * kTileSize), slopes = take(tiles * kTileSize);
  }
  T *largest, *sum, *dot, *factor;  // of each query
  T *mask, *scores;                 // of a tile
  T *turned_q, *q, *k, *v, *out;
  T *turned_gradient, *gradient;
  T* tile_largest;     // for each tile, the largest score of each query up to there
  T *shares, *slopes;  // of all tiles: exp(scores - that) and dp, then p and ds
  std::int64_t forward_elements = 0, elements = 0;

 private:
  T* take(std::int64_t count) {
    T* const taken = base_ == nullptr ? nullptr : base_ + elements;
    elements += count;  // a multiple of kTile, so that all is aligned
    return taken;
  }
  T* const base_;
};

// A block of queries of a head, and the tiles that it sees.
template <typename T>
struct Block {
  Block(const AttentionHead& h, std::int64_t number)
      : head(h),
        first(number * kTile),
        count(std::min(kTile, h.queries - first)),
        width(padded<T>(count)),
        seen(h.is_causal ? std::min(h.keys, first + count) : h.keys) {}
  std::int64_t tile_keys(std::int64_t tile) const { return std::min(kTile, seen - tile * kTile); }

  const AttentionHead& head;
  std::int64_t first, count;
  std::int64_t width;  // in whole vectors
  std::int64_t seen;   // keys
};

// Elements [key][query] of the mask; a bool that hides is 1.
template <typename T, typename From>
void copy_mask(T* to, const Block<T>& block, std::int64_t first, std::int64_t keys) {
  const AttentionHead& h = block.head;
  const auto* from = static_cast<const From*>(h.mask) + block.first * h.mask_row +
                     first * h.mask_column;
  const auto value = [](From x) {
    if constexpr (std::is_same_v<From, T>)
      return x;
    else
      return x != 0 ? T(0) : T(1);
  };
  if (h.mask_row == 0) {
    for (std::int64_t j = 0; j < keys; ++j)
      std::fill_n(to + j * kTile, block.width, value(from[j * h.mask_column]));
    return;
  }
  const auto copy_rows = [&](std::int64_t i, auto count) {  // which reads along rows
    for (std::int64_t j = 0; j < keys; ++j)
      for (std::int64_t r = 0; r < count; ++r)
        to[j * kTile + i + r] = value(from[(i + r) * h.mask_row + j * h.mask_column]);
  };
  std::int64_t i = 0;
  for (; i + 4 <= block.count; i += 4)
    copy_rows(i, std::integral_constant<std::int64_t, 4>());
  for (; i < block.count; ++i) copy_rows(i, std::integral_constant<std::int64_t, 1>());
  for (std::int64_t j = 0; j < keys; ++j)
    std::fill(to + j * kTile + block.count, to + j * kTile + block.width, T(0));
}

template <typename T>
void apply_mask(T* scores, T* mask, const Block<T>& block, std::int64_t first, std::int64_t keys) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto hidden = hn::Set(d, -std::numeric_limits<T>::infinity());
  const bool is_bool = block.head.is_bool_mask;
  is_bool ? copy_mask<T, std::uint8_t>(mask, block, first, keys)
          : copy_mask<T, T>(mask, block, first, keys);
  for (std::int64_t j = 0; j < keys; ++j)
    for (std::int64_t i = 0; i < block.width; i += lanes) {
      T* const at = scores + j * kTile + i;
      const auto m = hn::Load(d, mask + j * kTile + i), s = hn::Load(d, at);
      hn::Store(is_bool ? hn::IfThenElse(hn::Eq(m, hn::Zero(d)), s, hidden) : hn::Add(s, m), d, at);
    }
}

template <typename T>
void hide_later(T* scores, const Block<T>& block, std::int64_t first, std::int64_t keys) {
  for (std::int64_t j = std::max<std::int64_t>(0, block.first - first); j < keys; ++j)
    std::fill_n(scores + j * kTile, std::min(block.width, first + j - block.first),
                -std::numeric_limits<T>::infinity());
}

// scores[key][query] of a tile.
template <typename T>
void compute_scores(T* scores, const Room<T>& room, const Block<T>& block, std::int64_t tile) {
  const AttentionHead& h = block.head;
  const std::int64_t first = tile * kTile, keys = block.tile_keys(tile);
  const Rows<T> k = rows_of(h.k, first, keys, h.size, room.k);
  tile_product<false, T>({keys, block.width, h.size, k.data, k.stride, 1, room.turned_q, kTile,
                          scores, kTile});
  if (h.mask != nullptr) apply_mask(scores, room.mask, block, first, keys);
  if (h.is_causal && first + keys > block.first + 1) hide_later(scores, block, first, keys);
}

// Makes the tile exp(scores - largest so far). Sums before it are scaled by factor[query].
template <typename T>
void add_tile(T* scores, const Room<T>& room, const Block<T>& block, std::int64_t keys) {
  const hn::ScalableTag<T> d;
  const auto lowest = hn::Set(d, -std::numeric_limits<T>::infinity());
  for (std::int64_t i = 0; i < block.width; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    const auto before = hn::Load(d, room.largest + i);
    auto most = before, other = lowest;
    std::int64_t j = 0;
    for (; j + 2 <= keys; j += 2) {
      most = hn::Max(most, hn::Load(d, scores + j * kTile + i));
      other = hn::Max(other, hn::Load(d, scores + (j + 1) * kTile + i));
    }
    if (j < keys) most = hn::Max(most, hn::Load(d, scores + j * kTile + i));
    most = hn::Max(most, other);
    const auto shift = hn::IfThenZeroElse(hn::Eq(most, lowest), most);
    auto sum = hn::Zero(d);
    for (j = 0; j < keys; ++j) {
      T* const at = scores + j * kTile + i;
      const auto share = shares_of(d, hn::Sub(hn::Load(d, at), shift));
      hn::Store(share, d, at);
      sum = hn::Add(sum, share);
    }
    const auto factor = shares_of(d, hn::Sub(before, shift));
    hn::Store(most, d, room.largest + i);
    hn::Store(factor, d, room.factor + i);
    hn::Store(hn::MulAdd(hn::Load(d, room.sum + i), factor, sum), d, room.sum + i);
  }
}

template <typename T>
void begin_block(const Room<T>& room, const Block<T>& block, const Rows<T>& q) {
  turn(room.turned_q, q, block.count, block.head.size, static_cast<T>(block.head.scale));
  std::fill_n(room.largest, kTile, -std::numeric_limits<T>::infinity());
  std::fill_n(room.sum, kTile, T(0));
  std::fill_n(room.dot, kTile, T(0));
}

// rows[i] *= factor[i].
template <typename T>
void scale_rows(T* rows, std::int64_t stride, const T* factor, std::int64_t count) {
  if (std::all_of(factor, factor + count, [](T x) { return x == 1; })) return;
  const hn::ScalableTag<T> d;
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t e = 0; e < stride; e += static_cast<std::int64_t>(hn::Lanes(d)))
      hn::Store(hn::Mul(hn::Load(d, rows + i * stride + e), hn::Set(d, factor[i])), d,
                rows + i * stride + e);
}

template <typename T>
void write_rows(const AttentionRows& to, const Block<T>& block, const T* rows, std::int64_t size) {
  const std::int64_t stride = padded<T>(size);
  for (std::int64_t i = 0; i < block.count; ++i) {
    const std::int64_t at = (block.first + i) * to.stride;
    const T* const row = rows + i * stride;
    if constexpr (std::is_same_v<T, float>) {
      if (to.dtype == DType::kBF16) {
        tenon::detail::convert_dense(static_cast<BFloat16*>(to.data) + at, row, size);
        continue;
      }
      if (to.dtype == DType::kF16) {
        tenon::detail::convert_dense(static_cast<Half*>(to.data) + at, row, size);
        continue;
      }
    }
    std::copy_n(row, size, static_cast<T*>(to.data) + at);
  }
}

template <typename T>
void forward(const AttentionHead& h, std::int64_t number, char* memory) {
  const Room<T> room(h, memory);
  const Block<T> block(h, number);
  const std::int64_t width = padded<T>(h.value_size);
  begin_block(room, block, rows_of(h.q, block.first, block.count, h.size, room.q));
  std::fill_n(room.out, block.count * width, T(0));
  for (std::int64_t tile = 0; tile < cpu::attention_tiles(block.seen); ++tile) {
    const std::int64_t keys = block.tile_keys(tile);
    compute_scores(room.scores, room, block, tile);
    add_tile(room.scores, room, block, keys);
    if (tile > 0) scale_rows(room.out, width, room.factor, block.count);
    const Rows<T> v = rows_of(h.v, tile * kTile, keys, h.value_size, room.v);
    tile_product<true, T>({block.count, width, keys, room.scores, 1, kTile, v.data, v.stride,
                           room.out, width});
  }
  for (std::int64_t i = 0; i < block.count; ++i) room.factor[i] = 1 / room.sum[i];
  scale_rows(room.out, width, room.factor, block.count);
  write_rows(h.out, block, room.out, h.value_size);
}

// dot[query] = dot * factor + sum over keys of shares * slopes.
template <typename T>
void add_dots(const T* shares, const T* slopes, const Room<T>& room, const Block<T>& block,
              std::int64_t keys) {
  const hn::ScalableTag<T> d;
  for (std::int64_t i = 0; i < block.width; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    auto sum = hn::Zero(d);
    for (std::int64_t j = 0; j < keys; ++j)
      sum = hn::MulAdd(hn::Load(d, shares + j * kTile + i), hn::Load(d, slopes + j * kTile + i),
                       sum);
    const auto before = hn::Mul(hn::Load(d, room.dot + i), hn::Load(d, room.factor + i));
    hn::Store(hn::Add(before, sum), d, room.dot + i);
  }
}

template <typename T>
void begin(const AttentionHead& h, std::int64_t number, char* memory) {
  const Room<T> room(h, memory);
  const Block<T> block(h, number);
  begin_block(room, block, rows_of(h.q, block.first, block.count, h.size, room.q));
  turn(room.turned_gradient,
       rows_of(h.gradient, block.first, block.count, h.value_size, room.gradient), block.count,
       h.value_size, T(1));
  std::fill_n(room.out, block.count * padded<T>(h.size), T(0));
  for (std::int64_t tile = 0; tile < cpu::attention_tiles(block.seen); ++tile) {
    const std::int64_t keys = block.tile_keys(tile);
    T* const shares = room.shares + tile * kTileSize;
    T* const slopes = room.slopes + tile * kTileSize;
    compute_scores(shares, room, block, tile);
    add_tile(shares, room, block, keys);
    std::copy_n(room.largest, kTile, room.tile_largest + tile * kTile);
    const Rows<T> v = rows_of(h.v, tile * kTile, keys, h.value_size, room.v);
    tile_product<false, T>({keys, block.width, h.value_size, v.data, v.stride, 1,
                            room.turned_gradient, kTile, slopes, kTile});
    add_dots(shares, slopes, room, block, keys);
  }
  for (std::int64_t i = 0; i < block.width; ++i) {
    room.sum[i] = 1 / room.sum[i];
    room.dot[i] *= room.sum[i];
  }
}

// p = exp(scores - largest so far) exp(largest so far - largest) / sum, and ds. What is hidden by a
// bool has no ds, even where p is NaN.
template <typename T>
void finish_tile(T* shares, T* slopes, const T* tile_largest, const Room<T>& room,
                 const Block<T>& block, std::int64_t keys) {
  const hn::ScalableTag<T> d;
  const auto lowest = hn::Set(d, -std::numeric_limits<T>::infinity());
  const auto scale = hn::Set(d, static_cast<T>(block.head.scale));
  const bool hides = block.head.is_causal || block.head.is_bool_mask;
  for (std::int64_t i = 0; i < block.width; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    const auto most = hn::Load(d, room.largest + i);
    const auto shift = hn::IfThenZeroElse(hn::Eq(most, lowest), most);
    const auto factor = hn::Mul(shares_of(d, hn::Sub(hn::Load(d, tile_largest + i), shift)),
                                hn::Load(d, room.sum + i));
    const auto dot = hn::Load(d, room.dot + i);
    for (std::int64_t j = 0; j < keys; ++j) {
      T* const share_at = shares + j * kTile + i;
      T* const slope_at = slopes + j * kTile + i;
      const auto before = hn::Load(d, share_at);
      const auto share = hn::Mul(before, factor);
      auto slope =
          hn::Mul(hn::Mul(share, scale), hn::Sub(hn::Load(d, slope_at), dot));
      if (hides) slope = hn::IfThenZeroElse(hn::Eq(before, hn::Zero(d)), slope);
      hn::Store(share, d, share_at);
      hn::Store(slope, d, slope_at);
    }
  }
}

template <typename T>
void finish(const AttentionHead& h, std::int64_t number, std::int64_t tile, char* memory) {
  const Room<T> room(h, memory);
  const Block<T> block(h, number);
  const std::int64_t keys = block.tile_keys(tile), width = padded<T>(h.size);
  T* const slopes = room.slopes + tile * kTileSize;
  finish_tile(room.shares + tile * kTileSize, slopes, room.tile_largest + tile * kTile, room,
              block, keys);
  if (h.dq.data == nullptr) return;
  const Rows<T> k = rows_of(h.k, tile * kTile, keys, h.size, room.k);
  tile_product<true, T>(
      {block.count, width, keys, slopes, 1, kTile, k.data, k.stride, room.out, width});
}

template <typename T>
void add(const AttentionHead& h, std::int64_t number, std::int64_t tile, char* memory) {
  const Room<T> room(h, memory);
  const Block<T> block(h, number);
  const auto add_to = [&](const AttentionRows& to, std::int64_t size, const T* weights,
                          const AttentionRows& from, const T* copies) {
    if (to.data == nullptr) return;
    const Rows<T> rows = rows_again(from, block.first, size, copies);
    tile_product<true, T>({block.tile_keys(tile), size, block.count, weights, kTile, 1, rows.data,
                           rows.stride, static_cast<T*>(to.data) + tile * kTile * to.stride,
                           to.stride});
  };
  add_to(h.dv, h.value_size, room.shares + tile * kTileSize, h.gradient, room.gradient);
  add_to(h.dk, h.size, room.slopes + tile * kTileSize, h.q, room.q);
}

template <typename T>
void end(const AttentionHead& h, std::int64_t number, char* memory) {
  if (h.dq.data != nullptr)
    write_rows(h.dq, Block<T>(h, number), Room<T>(h, memory).out, h.size);
}

template <typename T>
std::size_t forward_bytes(const AttentionHead& h) {
  return static_cast<std::size_t>(Room<T>(h, nullptr).forward_elements) * sizeof(T);
}
template <typename T>
std::size_t backward_bytes(const AttentionHead& h) {
  return static_cast<std::size_t>(Room<T>(h, nullptr).elements) * sizeof(T);
}

template <typename T>
cpu::AttentionKernels kernels_of() {
  return {&forward_bytes<T>, &backward_bytes<T>, &forward<T>, &begin<T>,
          &finish<T>,        &add<T>,            &end<T>};
}

}  // namespace

cpu::AttentionKernels attention_kernels(DType compute) {
  return compute == DType::kF64 ? kernels_of<double>() : kernels_of<float>();
}

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(attention_kernels);

cpu::AttentionKernels cpu::attention_kernels(DType compute) {
  return HWY_DYNAMIC_DISPATCH(attention_kernels)(compute);
}

std::int64_t cpu::attention_tiles_seen(const AttentionHead& head, std::int64_t block) {
  return attention_tiles(head.is_causal ? std::min(head.keys, (block + 1) * kAttentionTile)
                                        : head.keys);
}

}  // namespace tenon::ops
#endif
