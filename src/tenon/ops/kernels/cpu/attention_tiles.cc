#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/attention_tiles.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tenon/ops/kernels/cpu/vector_loop-inl.h"
#include "tenon/ops/kernels/cpu/attention_rows-inl.h"
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

// The scratch memory of a block.
template <typename T>
class Room {
 public:
  Room(const AttentionHead& head, char* memory) : base_(reinterpret_cast<T*>(memory)) {
    const std::int64_t size = padded<T>(head.size), value_size = padded<T>(head.value_size);
    largest = take(kTile), sum = take(kTile), factor = take(kTile), scores = take(kTileSize);
    turned_q = take(kTile * size), rows = take(kTile * std::max(size, value_size));
    out = take(kTile * value_size);
    if (head.mask != nullptr) mask = take(kTileSize), lines = take(kTileSize);
  }
  T *largest, *sum, *factor;  // of each query
  T* scores;                  // of a tile
  T *turned_q, *rows, *out;
  T *mask = nullptr, *lines = nullptr;  // elements of the mask: [key][query], [query][key]
  std::int64_t elements = 0;

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

template <typename T>
void apply_mask(T* scores, const Room<T>& room, const Block<T>& block, std::int64_t first,
                std::int64_t keys) {
  const hn::ScalableTag<T> d;
  const bool is_bool = block.head.is_bool_mask;
  turn(room.mask, mask_rows(block.head, block.first, block.count, first, keys, room.lines),
       block.count, keys, T(1));
  for (std::int64_t j = 0; j < keys; ++j)
    for (std::int64_t i = 0; i < block.width; i += static_cast<std::int64_t>(hn::Lanes(d))) {
      T* const at = scores + j * kTile + i;
      const auto mask = hn::Load(d, room.mask + j * kTile + i);
      hn::Store(masked_score(d, hn::Load(d, at), mask, is_bool), d, at);
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
  const Rows<T> k = rows_of(h.k, first, keys, h.size, room.rows);
  tile_product<true, T>({keys, block.width, h.size, k.data, k.stride, 1, room.turned_q, kTile,
                         scores, kTile});
  if (h.mask != nullptr) apply_mask(scores, room, block, first, keys);
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
  turn(room.turned_q, rows_of(h.q, block.first, block.count, h.size, room.rows), block.count,
       h.size, static_cast<T>(h.scale));
  std::fill_n(room.largest, kTile, -std::numeric_limits<T>::infinity());
  std::fill_n(room.sum, kTile, T(0));
  std::fill_n(room.out, block.count * width, T(0));
  for (std::int64_t tile = 0; tile < cpu::attention_tiles(block.seen); ++tile) {
    const std::int64_t keys = block.tile_keys(tile);
    compute_scores(room.scores, room, block, tile);
    add_tile(room.scores, room, block, keys);
    if (tile > 0) scale_rows(room.out, width, room.factor, block.count);
    const Rows<T> v = rows_of(h.v, tile * kTile, keys, h.value_size, room.rows);
    tile_product<true, T>({block.count, width, keys, room.scores, 1, kTile, v.data, v.stride,
                           room.out, width, T(1)});
  }
  for (std::int64_t i = 0; i < block.count; ++i) room.factor[i] = 1 / room.sum[i];
  scale_rows(room.out, width, room.factor, block.count);
  write_rows(h.out, block, room.out, h.value_size);
  if (h.sums == nullptr) return;
  T* const sums = static_cast<T*>(h.sums) + block.first;
  std::copy_n(room.largest, block.count, sums);
  std::copy_n(room.factor, block.count, sums + h.queries);
}

template <typename T>
std::size_t room_bytes(const AttentionHead& h) {
  return static_cast<std::size_t>(Room<T>(h, nullptr).elements) * sizeof(T);
}

template <typename T>
cpu::AttentionKernels kernels_of() {
  return {&room_bytes<T>, &forward<T>};
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

}  // namespace tenon::ops
#endif
