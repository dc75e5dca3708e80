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

// A strip of b and a panel of a stay in the first-level cache, a block of a in the second.
constexpr std::int64_t kDepth = 192, kBlockRows = 128, kBlockColumns = 512;

template <typename T>
struct Operand {
  Operand(const T* elements, std::int64_t down_by, std::int64_t right_by)
      : data(elements), down(down_by), right(right_by) {}
  explicit Operand(const cpu::Matrix& matrix)
      : data(static_cast<const T*>(matrix.data)),
        down(matrix.transposed ? 1 : matrix.row_stride),
        right(matrix.transposed ? matrix.row_stride : 1) {}
  const T* data;
  std::int64_t down, right;  // distances of rows and of columns
};

// to[part][l][i] = from[(part * kWidth + i) across + l along]; zeros behind the last of `count`.
template <int kWidth, typename T>
void pack(T* to, const T* from, std::int64_t across, std::int64_t along, std::int64_t count,
          std::int64_t depth) {
  for (; count > 0; count -= kWidth, from += kWidth * across, to += kWidth * depth) {
    const std::int64_t some = std::min<std::int64_t>(kWidth, count);
    if (some < kWidth) std::fill_n(to, kWidth * depth, T(0));
    if (across == 1 && some == kWidth) {
      for (std::int64_t l = 0; l < depth; ++l)
        std::copy_n(from + l * along, kWidth, to + l * kWidth);
    } else if (some == kWidth) {
      for (std::int64_t l = 0; l < depth; ++l)
        for (int i = 0; i < kWidth; ++i) to[l * kWidth + i] = from[i * across + l * along];
    } else {
      for (std::int64_t l = 0; l < depth; ++l)
        for (std::int64_t i = 0; i < some; ++i) to[l * kWidth + i] = from[i * across + l * along];
    }
  }
}

template <typename T>
void multiply(const cpu::Products& p) {
  constexpr int kColumns = 2 * static_cast<int>(hn::MaxLanes(hn::ScalableTag<T>()));
  const Operand<T> a(p.a), b(p.b);
  const bool packs_a = a.down == 1;  // else the rows of a panel lie side by side as they are
  const auto whole = [](std::int64_t count, std::int64_t unit) {
    return (count + unit - 1) / unit * unit;
  };
  const std::int64_t parts = (p.k + kDepth - 1) / kDepth, deepest = (p.k + parts - 1) / parts;
  const std::int64_t in_strips = whole(std::min(p.n, kBlockColumns), kColumns) * deepest;
  const std::int64_t in_panels =
      packs_a ? whole(std::min(p.m, kBlockRows), kProductRows) * deepest : 0;
  T* const strips = cpu::block_product_room<T>(in_strips + in_panels);
  T* const panels = strips + in_strips;
  for (std::int64_t column = 0; column < p.n; column += kBlockColumns)
    for (std::int64_t l = 0; l < p.k; l += deepest) {
      const std::int64_t columns = std::min(kBlockColumns, p.n - column);
      const std::int64_t depth = std::min(deepest, p.k - l);
      pack<kColumns>(strips, b.data + l * b.down + column * b.right, b.right, b.down, columns,
                     depth);
      for (std::int64_t row = 0; row < p.m; row += kBlockRows) {
        const std::int64_t rows = std::min(kBlockRows, p.m - row);
        const T* const block = a.data + row * a.down + l * a.right;
        if (packs_a) pack<kProductRows>(panels, block, a.down, a.right, rows, depth);
        for (std::int64_t c = 0; c < columns; c += kColumns)
          for (std::int64_t r = 0; r < rows; r += kProductRows) {
            const Operand<T> panel = packs_a ? Operand<T>(panels + r * depth, 1, kProductRows)
                                             : Operand<T>(block + r * a.down, a.down, a.right);
            tile_product<true, T>(
                {std::min<std::int64_t>(kProductRows, rows - r),
                 std::min<std::int64_t>(kColumns, columns - c), depth, panel.data, panel.down,
                 panel.right, strips + c * depth, kColumns,
                 static_cast<T*>(p.out) + (row + r) * p.out_stride + column + c, p.out_stride,
                 l == 0 ? static_cast<T>(p.beta) : T(1)});
          }
      }
    }
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
