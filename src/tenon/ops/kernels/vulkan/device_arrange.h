// Copies that other kernels read as texels. Private to the sources beside it.
#pragma once

#include "tenon/ops/kernels/vulkan/device_kernels.h"

namespace tenon::vulkan {

// One dimension of a copy: how many, and how far apart in the source, in elements.
struct Extent {
  std::int64_t size = 1, step = 0;
};

// What is copied: [batch, i, j, y, x], the first from so many elements behind the source's first.
struct Arrangement {
  Extent batch = {}, i = {}, j = {}, y = {}, x = {};
  std::int64_t row = 0;    // x with the zeros behind it
  std::int64_t first = 0;
};

constexpr std::int64_t in_fours(std::int64_t size) { return (size + 3) / 4 * 4; }

// The copy, contiguous, of f32. Eight of j are copied at once. Undefined, and nothing has happened,
// where the source has no texels or its sizes are too large. Requires: a device that has_lanes().
Tensor arrange(const Tensor& source, const Arrangement& a);

}  // namespace tenon::vulkan
