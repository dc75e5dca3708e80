#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/attention_gradients.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/cache_control.h"
#include "tenon/ops/kernels/cpu/vector_loop-inl.h"
#include "tenon/ops/kernels/cpu/attention_rows-inl.h"
#include "tenon/ops/kernels/cpu/tile_product-inl.h"
// clang-format on

#include <algorithm>
#include <limits>

#include "tenon/ops/kernels/cpu/attention_tiles.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

namespace hn = hwy::HWY_NAMESPACE;

using cpu::AttentionRange;

// The scratch memory of a thread.
template <typename T>
class Room {
 public:
  Room(const AttentionHead& head, char* memory) : base_(reinterpret_cast<T*>(memory)) {
    const std::int64_t size = padded<T>(head.size), value_size = padded<T>(head.value_size);
    turned_k = take(kTile * std::max(size, value_size)), turned_v = take(kTile * value_size);
    q = take(kTile * size), k = take(kTile * size), gradient = take(kTile * value_size);
    v = take(kTile * value_size);
    shares = take(kTileSize), slopes = take(kTileSize);
    if (head.mask != nullptr) lines = take(kTileSize);
  }
  T *turned_k, *turned_v;     // [element][key]
  T *q, *k;                   // rows times the scale
  T *gradient, *v;
  T *shares, *slopes;         // [query][key]: scores and dp, then p and ds
  T* lines = nullptr;         // elements of the mask
  std::int64_t elements = 0;

 private:
  T* take(std::int64_t count) {
    T* const taken = base_ == nullptr ? nullptr : base_ + elements;
    elements += count;  // a multiple of kTile, so that all is aligned
    return taken;
  }
  T* const base_;
};

// Queries of a block and keys of a tile.
struct Pair {
  std::int64_t first_query, queries, first_key, keys;
};

// rows[i] * scale, as whole vectors.
template <typename T>
Rows<T> scaled_rows(const AttentionRows& from, std::int64_t first, std::int64_t count,
                    std::int64_t size, T scale, T* to) {
  const hn::ScalableTag<T> d;
  const std::int64_t width = padded<T>(size);
  const Rows<T> rows = rows_of(from, first, count, size, to);
  const auto factor = hn::Set(d, scale);
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t e = 0; e < width; e += static_cast<std::int64_t>(hn::Lanes(d)))
      hn::Store(hn::Mul(hn::LoadU(d, rows.data + i * rows.stride + e), factor), d,
                to + i * width + e);
  return {to, width};
}

// Asks for the next block's part of the mask: its rows lie far apart, so nothing else foresees it.
void prefetch_mask(const AttentionHead& h, std::int64_t first_query, std::int64_t first_key) {
  if (h.mask == nullptr || h.mask_row == 0) return;
  const auto item = static_cast<std::int64_t>(item_size(h.is_bool_mask ? DType::kBool : h.dtype));
  const std::int64_t queries = std::min(kTile, h.queries - first_query);
  const std::int64_t keys = std::min(kTile, h.keys - first_key);
  for (std::int64_t i = first_query; i < first_query + queries; ++i) {
    const std::int64_t at = i * h.mask_row + first_key * h.mask_column;
    for (std::int64_t byte = 0; byte < keys * item; byte += 64)
      hwy::Prefetch(static_cast<const char*>(h.mask) + at * item + byte);
  }
}

template <typename T>
void hide_scores(const AttentionHead& h, const Room<T>& room, const Pair& pair) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (h.mask != nullptr) {
    const Rows<T> mask = mask_rows(h, pair.first_query, pair.queries, pair.first_key, pair.keys,
                                   room.lines);
    for (std::int64_t i = 0; i < pair.queries; ++i)
      for (std::int64_t j = 0; j < pair.keys; j += lanes) {
        T* const at = room.shares + i * kTile + j;
        const auto element = load_some(d, mask.data + i * mask.stride + j, pair.keys - j);
        hn::Store(masked_score(d, hn::Load(d, at), element, h.is_bool_mask), d, at);
      }
  }
  if (!h.is_causal) return;
  for (std::int64_t i = 0; i < pair.queries; ++i) {
    const std::int64_t seen = pair.first_query + i + 1 - pair.first_key;
    if (seen < pair.keys)
      std::fill_n(room.shares + i * kTile + seen, pair.keys - seen,
                  -std::numeric_limits<T>::infinity());
  }
}

// p = exp(scores - largest) / sum, ds = p (dp - dot). What is hidden by a bool has no ds, even
// where p is NaN.
template <typename T>
void finish_tile(const AttentionHead& h, const Room<T>& room, const Pair& pair) {
  const hn::ScalableTag<T> d;
  const auto lowest = hn::Set(d, -std::numeric_limits<T>::infinity());
  const bool hides = h.is_causal || h.is_bool_mask;
  for (std::int64_t i = 0; i < pair.queries; ++i) {
    const T* const sums = static_cast<const T*>(h.sums) + pair.first_query + i;
    const auto largest = hn::Set(d, sums[0]), factor = hn::Set(d, sums[h.queries]);
    const auto dot = hn::Set(d, static_cast<const T*>(h.dots)[pair.first_query + i]);
    for (std::int64_t j = 0; j < pair.keys; j += static_cast<std::int64_t>(hn::Lanes(d))) {
      T* const share_at = room.shares + i * kTile + j;
      T* const slope_at = room.slopes + i * kTile + j;
      const auto score = hn::Load(d, share_at);
      const auto share = hn::Mul(shares_of(d, hn::Sub(score, largest)), factor);
      auto slope = hn::Mul(share, hn::Sub(hn::Load(d, slope_at), dot));
      if (hides) slope = hn::IfThenZeroElse(hn::Eq(score, lowest), slope);
      hn::Store(share, d, share_at);
      hn::Store(slope, d, slope_at);
    }
  }
}

// to = the product, or that is added.
template <typename T>
void put_product(bool adds, const AttentionRows& to, std::int64_t first, TileProduct<T> p) {
  if (to.data == nullptr) return;
  p.c = static_cast<T*>(to.data) + first * to.stride, p.c_row = to.stride;
  p.beta = adds ? T(1) : T(0);
  tile_product<true, T>(p);
}

// Adds to the gradients what the queries and the keys are to each other.
template <typename T>
void add_pair(const AttentionHead& h, const Room<T>& room, const Pair& pair, const Rows<T>& k,
              bool is_first_tile, bool is_first_block) {
  const std::int64_t queries = pair.queries, keys = pair.keys, width = padded<T>(keys);
  const Rows<T> q = scaled_rows(h.q, pair.first_query, queries, h.size, static_cast<T>(h.scale),
                                room.q);
  const Rows<T> g = rows_of(h.gradient, pair.first_query, queries, h.value_size, room.gradient);
  tile_product<true, T>({queries, width, h.size, q.data, q.stride, 1, room.turned_k, kTile,
                         room.shares, kTile});
  tile_product<true, T>({queries, width, h.value_size, g.data, g.stride, 1, room.turned_v, kTile,
                         room.slopes, kTile});
  hide_scores(h, room, pair);
  finish_tile(h, room, pair);
  put_product<T>(!is_first_tile, h.dq, pair.first_query,
                 {queries, h.size, keys, room.slopes, kTile, 1, k.data, k.stride, nullptr, 0});
  put_product<T>(!is_first_block, h.dv, pair.first_key,
                 {keys, h.value_size, queries, room.shares, 1, kTile, g.data, g.stride, nullptr,
                  0});
  put_product<T>(!is_first_block, h.dk, pair.first_key,
                 {keys, h.size, queries, room.slopes, 1, kTile, q.data, q.stride, nullptr, 0});
}

template <typename T>
void fill_zeros(const AttentionRows& rows, std::int64_t first, std::int64_t count,
                std::int64_t size) {
  for (std::int64_t i = first; rows.data != nullptr && i < first + count; ++i)
    std::fill_n(static_cast<T*>(rows.data) + i * rows.stride, size, T(0));
}

template <typename T>
void add_gradients(const AttentionHead& h, AttentionRange blocks, AttentionRange tiles,
                   char* memory) {
  const Room<T> room(h, memory);
  for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
    const std::int64_t first = tile * kTile, keys = std::min(kTile, h.keys - first);
    const std::int64_t first_block = h.is_causal ? std::max(blocks.begin, tile) : blocks.begin;
    if (first_block >= blocks.end) {
      fill_zeros<T>(h.dk, first, keys, h.size);
      fill_zeros<T>(h.dv, first, keys, h.value_size);
      continue;
    }
    turn(room.turned_k, rows_of(h.k, first, keys, h.size, room.k), keys, h.size, T(1));
    turn(room.turned_v, rows_of(h.v, first, keys, h.value_size, room.v), keys, h.value_size, T(1));
    const Rows<T> k = scaled_rows(h.k, first, keys, h.size, static_cast<T>(h.scale), room.k);
    for (std::int64_t block = first_block; block < blocks.end; ++block) {
      const std::int64_t first_query = block * kTile;
      if (block + 1 < blocks.end) prefetch_mask(h, first_query + kTile, first);
      add_pair(h, room, {first_query, std::min(kTile, h.queries - first_query), first, keys}, k,
               tile == tiles.begin, block == first_block);
    }
  }
}

// rowsum(do o), in the order of the sums in dp: so where one share is 1, its ds is 0.
template <typename T>
void compute_dots(const AttentionHead& h, std::int64_t block, char* memory) {
  const Room<T> room(h, memory);
  const hn::ScalableTag<T> d;
  const std::int64_t first = block * kTile, count = std::min(kTile, h.queries - first);
  T *const gradient = room.turned_k, *const out = room.turned_v;
  turn(gradient, rows_of(h.gradient, first, count, h.value_size, room.v), count, h.value_size,
       T(1));
  turn(out, rows_of(h.out, first, count, h.value_size, room.v), count, h.value_size, T(1));
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    auto sum = hn::Zero(d);
    for (std::int64_t e = 0; e < h.value_size; ++e)
      sum = hn::MulAdd(hn::Load(d, gradient + e * kTile + i), hn::Load(d, out + e * kTile + i),
                       sum);
    store_some(d, sum, static_cast<T*>(h.dots) + first + i, count - i);
  }
}

template <typename T>
std::size_t room_bytes(const AttentionHead& h) {
  return static_cast<std::size_t>(Room<T>(h, nullptr).elements) * sizeof(T);
}

template <typename T>
cpu::AttentionGradientKernels kernels_of() {
  return {&room_bytes<T>, &compute_dots<T>, &add_gradients<T>};
}

}  // namespace

cpu::AttentionGradientKernels attention_gradient_kernels(DType compute) {
  return compute == DType::kF64 ? kernels_of<double>() : kernels_of<float>();
}

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(attention_gradient_kernels);

cpu::AttentionGradientKernels cpu::attention_gradient_kernels(DType compute) {
  return HWY_DYNAMIC_DISPATCH(attention_gradient_kernels)(compute);
}

}  // namespace tenon::ops
#endif
