// Plain loops, compiled once for each instruction set and vectorised by the compiler.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tenon/ops/kernels/cpu/index_rows.cc"
#include "tenon/ops/kernels/cpu/simd_targets.h"
// The order matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

#include "tenon/ops/kernels/cpu/index_rows.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::ops::HWY_NAMESPACE {

// By sign bits, several at once.
bool are_indices(const std::int64_t* values, std::int64_t count, std::int64_t size) {
  std::uint64_t signs = 0;
  const auto last = static_cast<std::uint64_t>(size - 1);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<std::uint64_t>(values[i]);
    signs |= value | (last - value);
  }
  return static_cast<std::int64_t>(signs) >= 0;
}

}  // namespace tenon::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::ops {

HWY_EXPORT(are_indices);

bool cpu::are_indices(const std::int64_t* values, std::int64_t count, std::int64_t size) {
  return HWY_DYNAMIC_DISPATCH(are_indices)(values, count, size);
}

}  // namespace tenon::ops
#endif
