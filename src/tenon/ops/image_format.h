// In which order windows over images compute.
#pragma once

#include "tenon/tensor/kernels/vulkan/elements.h"
#include "tenon/tensor/tensor.h"

namespace tenon::ops {

// The order of what is computed from `a`: its own where its channels lie side by side, since
// vectors of channels need no other order. Kernels of devices want planes.
inline MemoryFormat image_format(const Tensor& a) {
  constexpr MemoryFormat kLast = MemoryFormat::kChannelsLast;
  const bool is_last = !a.is_contiguous() && a.is_contiguous(kLast) && !vulkan::holds(a);
  return is_last ? kLast : MemoryFormat::kContiguous;
}

}  // namespace tenon::ops
