#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/block_product.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tenon/ops/kernels/cpu/vector_loop-inl.h"
#include "tenon/ops/kernels/cpu/tile_product-inl.h"
// clang-format on

#include <algorithm>
#include <memory>
#include <new>

#include "tenon/ops/kernels/cpu/block_product.h"

#ifndef TENON_OPS_BLOCK_PRODUCT_ROOM
#define TENON_OPS_BLOCK_PRODUCT_ROOM
namespace tenon::ops::cpu {

// The calling thread's memory for so many elements, at most what the largest blocks take.
template <typename T>
T* block_product_room(std::int64_t count) {
  constexpr std::align_val_t kAlignment{64};
  struct Delete {
    void operator()(void* room) const { ::operator delete(room, kAlignment); }
  };
  thread_local std::unique_ptr<void, Delete> room;
  thread_local std::int64_t held = 0;
  if (count > held) {
    held = 0;
    room.reset();
    room.reset(::operator new(static_cast<std::size_t>(count) * sizeof(T), kAlignment));
    held = count;
  }
  return static_cast<T*>(room.get());
}

}  // namespace tenon::ops::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

namespace hn = hwy::HWY_NAMESPACE;

// A panel of a, as many rows as the registers hold, stays in the first-level cache, a block of b in
// the second.
constexpr std::int64_t kBlockRows = 64;

template <typename T>
struct Operand {
  explicit Operand(const cpu::Matrix& matrix)
      : data(static_cast<const T*>(matrix.data)),
        down(matrix.transposed ? 1 : matrix.row_stride),
        right(matrix.transposed ? matrix.row_stride : 1) {}
  const T* data;
  std::int64_t down, right;  // distances of rows and of columns
};

#if HWY_TARGET == HWY_SCALAR
constexpr std::int64_t kTurnedBytes = 1;
template <typename T>
void turn_block(T*, std::int64_t, const T*, std::int64_t) {}
#else
// Transposes as many rows of kTurnedBytes as elements they have.
constexpr std::int64_t kTurnedBytes = 16;
template <typename T>
HWY_INLINE void turn_block(T* to, std::int64_t to_row, const T* from, std::int64_t from_row) {
  const hn::FixedTag<T, kTurnedBytes / sizeof(T)> d;
  const auto v0 = hn::LoadU(d, from), v1 = hn::LoadU(d, from + from_row);
  if constexpr (sizeof(T) == 8) {
    hn::StoreU(hn::InterleaveLower(v0, v1), d, to);
    hn::StoreU(hn::InterleaveUpper(d, v0, v1), d, to + to_row);
  } else {
    const auto v2 = hn::LoadU(d, from + 2 * from_row), v3 = hn::LoadU(d, from + 3 * from_row);
    const auto even0 = hn::InterleaveLower(v0, v2), even1 = hn::InterleaveUpper(d, v0, v2);
    const auto odd0 = hn::InterleaveLower(v1, v3), odd1 = hn::InterleaveUpper(d, v1, v3);
    hn::StoreU(hn::InterleaveLower(even0, odd0), d, to);
    hn::StoreU(hn::InterleaveUpper(d, even0, odd0), d, to + to_row);
    hn::StoreU(hn::InterleaveLower(even1, odd1), d, to + 2 * to_row);
    hn::StoreU(hn::InterleaveUpper(d, even1, odd1), d, to + 3 * to_row);
  }
}
#endif

// to[l][i] = from[i across + l], in rows of `width`; zeros up to `end` behind the last i.
template <typename T>
void pack_turned(T* to, std::int64_t width, const T* from, std::int64_t across, std::int64_t count,
                 std::int64_t depth, std::int64_t end) {
  constexpr auto kBlock = kTurnedBytes / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t i_end = kBlock < 2 ? 0 : count / kBlock * kBlock;
  const std::int64_t l_end = kBlock < 2 ? 0 : depth / kBlock * kBlock;
  for (std::int64_t l = 0; l < l_end; l += kBlock)
    for (std::int64_t i = 0; i < i_end; i += kBlock)
      turn_block(to + l * width + i, width, from + i * across + l, across);
  for (std::int64_t l = 0; l < depth; ++l)
    for (std::int64_t i = l < l_end ? i_end : 0; i < end; ++i)
      to[l * width + i] = i < count ? from[i * across + l] : T(0);
}

// to[i / width][l][i % width] = from[i across + l along], where one of the distances is 1; zeros
// behind the last i of `count` up to the next whole vector.
template <class D, typename T>
void pack(D d, T* to, std::int64_t width, const T* from, std::int64_t across, std::int64_t along,
          std::int64_t count, std::int64_t depth) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr std::int64_t kAhead = 8;
  if (across == 1) {  // along the rows in memory
    for (std::int64_t l = 0; l < depth; ++l)
      for (std::int64_t first = 0; first < count; first += width) {
        const std::int64_t some = std::min(width, count - first);
        const T* const row = from + l * along + first;
        T* const packed = to + first * depth + l * width;
        std::int64_t i = 0;
        for (; i + lanes <= some; i += lanes) {
          __builtin_prefetch(row + i + kAhead * along);
          hn::StoreU(hn::LoadU(d, row + i), d, packed + i);
        }
        if (i < some) hn::StoreU(load_some(d, row + i, some - i), d, packed + i);
      }
    return;
  }
  for (; count > 0; count -= width, from += width * across, to += width * depth) {
    const std::int64_t some = std::min(width, count);
    pack_turned(to, width, from, across, some, depth, (some + lanes - 1) / lanes * lanes);
  }
}

template <typename T>
class Blocks {
 public:
  explicit Blocks(const cpu::Products& products)
      : p_(products),
        a_(products.a),
        b_(products.b),
        depth_(parts_of(products.k)),
        packs_a_(a_.down == 1 && p_.n > kFewColumns),
        packs_b_(!kMaskedIsExact || b_.right != 1 || p_.m > most_in_place()),
        block_(cpu::block_product_room<T>((columns() + rows()) * depth_)),
        panels_(block_ + columns() * depth_) {}

  // Number i of the batch.
  void run(std::int64_t i) {
    a_.data = static_cast<const T*>(p_.a.data) + i * p_.a_apart;
    b_.data = static_cast<const T*>(p_.b.data) + i * p_.b_apart;
    out_ = static_cast<T*>(p_.out) + i * p_.out_apart;
    for (std::int64_t column = 0; column < p_.n; column += kBlockColumns)
      for (std::int64_t l = 0; l < p_.k; l += depth_) add_block(column, l);
  }

 private:
  static constexpr auto kStrip =
      kProductVectors * static_cast<std::int64_t>(hn::MaxLanes(hn::ScalableTag<T>()));
  static constexpr std::int64_t kFewColumns = 256 / sizeof(T);
  static constexpr std::int64_t kBlockColumns = 2048 / sizeof(T);

  // A few rows meet b where it lies.
  std::int64_t most_in_place() const {
    constexpr std::int64_t kFewRows = HWY_TARGET == HWY_AVX3 ? 96 : 128 / sizeof(T);
    return cpu::rows_of_b_collide(p_, cpu::kApartInFirstLevel) ? kProductRows : kFewRows;
  }
  static std::int64_t whole(std::int64_t count, std::int64_t unit) {
    return (count + unit - 1) / unit * unit;
  }
  static std::int64_t parts_of(std::int64_t k) {
    const std::int64_t parts = (k + cpu::kBlockDepth - 1) / cpu::kBlockDepth;
    return (k + parts - 1) / parts;
  }
  // That are packed together.
  std::int64_t columns() const {
    return packs_b_ ? whole(std::min(p_.n, kBlockColumns), kStrip) : 0;
  }
  std::int64_t rows() const {
    return packs_a_ ? whole(std::min(p_.m, kBlockRows), kProductRows) : 0;
  }

  // Rows of the result take in as many columns of a from `l` on, rows of b.
  void add_block(std::int64_t column, std::int64_t l) const {
    TileProduct<T> tile{.n = std::min(kBlockColumns, p_.n - column),
                        .k = std::min(depth_, p_.k - l),
                        .a_row = packs_a_ ? 1 : a_.down,
                        .a_column = packs_a_ ? kProductRows : a_.right,
                        .b = b_.data + l * b_.down + column * b_.right,
                        .b_row = b_.down,
                        .c_row = p_.out_stride,
                        .beta = l == 0 ? static_cast<T>(p_.beta) : T(1)};
    if (packs_b_) {
      pack(hn::ScalableTag<T>(), block_, kStrip, tile.b, b_.right, b_.down, tile.n, tile.k);
      tile.b = block_, tile.b_row = kStrip, tile.b_strip = kStrip * tile.k;
    }
    const std::int64_t step = packs_a_ ? kProductRows : p_.m;
    for (std::int64_t row = 0; row < p_.m; row += step) {
      tile.a = a_.data + row * a_.down + l * a_.right;
      if (packs_a_) {
        const std::int64_t in_block = row % kBlockRows;
        if (in_block == 0)
          pack(hn::CappedTag<T, kProductRows>(), panels_, kProductRows, tile.a, a_.down, a_.right,
               std::min(kBlockRows, p_.m - row), tile.k);
        tile.a = panels_ + in_block * tile.k;
      }
      tile.m = std::min(step, p_.m - row);
      tile.c = out_ + row * p_.out_stride + column;
      packs_b_ ? tile_product<true>(tile) : tile_product<!kMaskedIsExact>(tile);
    }
  }

  const cpu::Products& p_;
  Operand<T> a_, b_;
  T* out_ = nullptr;
  const std::int64_t depth_;  // at most kBlockDepth, in equal parts of k
  const bool packs_a_;        // where rows lie across memory; else they are read where they are
  const bool packs_b_;
  T* const block_;   // of b: strips of kProductVectors' columns
  T* const panels_;  // of a: as many rows as the registers hold
};

template <typename T>
void multiply(const cpu::Products& p) {
  Blocks<T> blocks(p);
  for (std::int64_t i = 0; i < p.count; ++i) blocks.run(i);
}

}  // namespace

std::int64_t vector_bytes() {
  return static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<std::uint8_t>()));
}

void block_product(const cpu::Products& p) {
  p.dtype == DType::kF64 ? multiply<double>(p) : multiply<float>(p);
}

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(vector_bytes);
HWY_EXPORT(block_product);

std::int64_t cpu::block_product_vector_bytes() { return HWY_DYNAMIC_DISPATCH(vector_bytes)(); }

void cpu::block_product(const Products& p) { HWY_DYNAMIC_DISPATCH(block_product)(p); }

}  // namespace tenon::ops
#endif
