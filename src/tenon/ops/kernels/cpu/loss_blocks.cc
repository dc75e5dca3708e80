// Plain loops, compiled once for each instruction set and vectorised by the compiler.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/loss_blocks.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

#include <algorithm>
#include <cmath>

#include "tenon/ops/kernels/cpu/loss_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {
namespace {  // several files have types of one name here

struct Squared {
  template <typename T>
  static T of(T x, T) {
    return x * x;
  }
};
struct Absolute {
  template <typename T>
  static T of(T x, T) {
    return std::abs(x);
  }
};
// x^2 / 2 below the limit, a line above it, without a branch.
struct Huber {
  template <typename T>
  static T of(T x, T limit) {
    const T distance = std::abs(x), near = distance < limit ? distance : limit;
    return near * (distance - T(0.5) * near);
  }
};

template <typename T>
T limit_of(const double* numbers) {
  return numbers == nullptr ? T(0) : static_cast<T>(*numbers);
}

template <class Loss, typename T>
void each(void* out, const void* const* in, std::int64_t count, const double* numbers) {
  const auto* a = static_cast<const T*>(in[0]);
  const auto* b = static_cast<const T*>(in[1]);
  auto* result = static_cast<T*>(out);
  const T limit = limit_of<T>(numbers);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) result[i] = Loss::of(a[i] - b[i], limit);
}

template <class Loss, typename T>
double sum(const void* const* in, std::int64_t count, const double* numbers) {
  constexpr std::int64_t kLanes = 32, kStretch = 2048;
  const auto* a = static_cast<const T*>(in[0]);
  const auto* b = static_cast<const T*>(in[1]);
  const T limit = limit_of<T>(numbers);
  double total = 0;
  for (std::int64_t i = 0; i < count;) {
    T lanes[kLanes] = {};
    const std::int64_t stop = std::min(count, i + kStretch);
    for (; i + kLanes <= stop; i += kLanes)
      for (std::int64_t l = 0; l < kLanes; ++l) lanes[l] += Loss::of(a[i + l] - b[i + l], limit);
    for (std::int64_t l = 0; i < stop; ++i, ++l) lanes[l] += Loss::of(a[i] - b[i], limit);
    for (std::int64_t width = kLanes / 2; width > 0; width /= 2)
      for (std::int64_t l = 0; l < width; ++l) lanes[l] += lanes[l + width];
    total += static_cast<double>(lanes[0]);
  }
  return total;
}

template <class Loss>
cpu::LossBlocks blocks_of(DType compute) {
  if (compute == DType::kF64) return {&each<Loss, double>, &sum<Loss, double>};
  return {&each<Loss, float>, &sum<Loss, float>};
}

}  // namespace

cpu::LossBlocks loss_blocks(cpu::PairLoss loss, DType compute) {
  if (loss == cpu::PairLoss::kSquared) return blocks_of<Squared>(compute);
  return loss == cpu::PairLoss::kAbsolute ? blocks_of<Absolute>(compute)
                                          : blocks_of<Huber>(compute);
}

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(loss_blocks);

cpu::LossBlocks cpu::loss_blocks(PairLoss loss, DType compute) {
  return HWY_DYNAMIC_DISPATCH(loss_blocks)(loss, compute);
}

}  // namespace tenon::ops
#endif
