#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/small_product.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tenon/ops/kernels/cpu/vector_loop-inl.h"
#include "tenon/ops/kernels/cpu/tile_product-inl.h"
// clang-format on

#include <algorithm>

#include "tenon/ops/kernels/cpu/small_product.h"

#ifndef TENON_OPS_SMALL_PRODUCT_TASK
#define TENON_OPS_SMALL_PRODUCT_TASK
namespace tenon::ops::cpu {

// The most elements of b, whose rows are whole vectors, and the most lanes of one.
constexpr std::int64_t kMostElements = 4096, kMostLanes = 16;

}  // namespace tenon::ops::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

namespace hn = hwy::HWY_NAMESPACE;

// Fills rows of whole vectors with b.
template <typename T>
void copy_rows(T* room, std::int64_t width, const cpu::Matrix& b, std::int64_t n, std::int64_t k) {
  const auto* from = static_cast<const T*>(b.data);
  const std::int64_t down = b.transposed ? 1 : b.row_stride;
  const std::int64_t right = b.transposed ? b.row_stride : 1;
  for (std::int64_t l = 0; l < k; ++l) {
    T* const line = room + l * width;
    for (std::int64_t c = 0; c < n; ++c) line[c] = from[l * down + c * right];
    std::fill(line + n, line + width, T(0));
  }
}

template <typename T>
void products(const cpu::Products& p) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  const bool is_copied = p.b.transposed || (!kMaskedIsExact && p.n % lanes != 0);
  const std::int64_t width = (p.n + lanes - 1) / lanes * lanes;
  alignas(64) T room[cpu::kMostElements];
  TileProduct<T> one{p.m,
                     p.n,
                     p.k,
                     nullptr,
                     p.a.transposed ? 1 : p.a.row_stride,
                     p.a.transposed ? p.a.row_stride : 1,
                     room,
                     is_copied ? width : p.b.row_stride,
                     nullptr,
                     p.out_stride,
                     static_cast<T>(p.beta)};
  for (std::int64_t i = 0; i < p.count; ++i) {
    one.a = static_cast<const T*>(p.a.data) + i * p.a_apart;
    one.c = static_cast<T*>(p.out) + i * p.out_apart;
    const auto* const b = static_cast<const T*>(p.b.data) + i * p.b_apart;
    if (!is_copied)
      one.b = b;
    else if (i == 0 || p.b_apart != 0)
      copy_rows(room, width, {b, p.b.row_stride, p.b.transposed}, p.n, p.k);
    tile_product<!kMaskedIsExact>(one);
  }
}

}  // namespace

void small_products(const cpu::Products& p) {
  p.dtype == DType::kF64 ? products<double>(p) : products<float>(p); }

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(small_products);

bool cpu::is_small_product(const Products& p) {
  constexpr std::int64_t kMostWork = 1 << 18;
  return (p.dtype == DType::kF32 || p.dtype == DType::kF64) && p.m * p.n * p.k <= kMostWork &&
         p.k * ((p.n + kMostLanes - 1) / kMostLanes * kMostLanes) <= kMostElements;
}

void cpu::small_products(const Products& p) { HWY_DYNAMIC_DISPATCH(small_products)(p); }

}  // namespace tenon::ops
#endif
