// Windows that walk planes: convolutions of single channels.
#pragma once

#include <cstdint>

#include "tenon/ops/conv.h"
#include "tenon/tensor/dtype.h"

namespace tenon::ops::cpu {

struct WindowWork {
  DType dtype;                         // f32 or f64
  std::int64_t height, width;          // of a plane
  std::int64_t out_height, out_width;  // places
  Pair kernel, stride, padding, dilation = 1;
};

// Each plane of `in` gives `filters` planes of `out`, the planes one after the other. An element is
// the sum of a window's elements, each times a tap of the filter, and of the filter's bias, if
// there is one. Filters repeat after `channels` planes. Padding counts as zero. Taps are taken row
// by row, so that the result is the same on any number of threads and machines but for fused
// products. False, and nothing is done, where planes with their padding would take much more
// memory.
bool walk_windows(const WindowWork& work, void* out, const void* in, std::int64_t planes,
                  std::int64_t channels, std::int64_t filters, const void* taps, const void* bias);

}  // namespace tenon::ops::cpu
