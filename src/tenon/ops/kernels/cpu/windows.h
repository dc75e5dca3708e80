// Windows that walk planes: convolutions of single channels, and pools.
#pragma once

#include <cstdint>

#include "tenon/ops/conv.h"
#include "tenon/tensor/dtype.h"

namespace tenon::ops::cpu {

struct WindowWork {
  enum class Kind { kProducts, kLargest, kSum };
  Kind kind;
  DType dtype;                         // f32 or f64
  std::int64_t height, width;          // of a plane
  std::int64_t out_height, out_width;  // places
  Pair kernel, stride, padding, dilation = 1;
};

// Each plane of `in` gives `filters` planes of `out`, the planes one after the other. An element is
// the sum of a window's elements, each times a tap of the filter, and of the filter's bias; or the
// largest element, or a NaN if there is one; or the sum. Filters repeat after `channels` planes.
// Padding counts as zero, for the largest as minus infinity. `taps` and `bias` are null where there
// are none. Taps are taken row by row, so that the result is the same on any number of threads and
// machines but for fused products. False, and nothing is done, where planes with their padding
// would take much more memory.
bool walk_windows(const WindowWork& work, void* out, const void* in, std::int64_t planes,
                  std::int64_t channels, std::int64_t filters, const void* taps, const void* bias);

}  // namespace tenon::ops::cpu
