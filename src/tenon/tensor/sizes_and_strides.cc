#include "tenon/tensor/sizes_and_strides.h"

#include <algorithm>

namespace tenon {

void SizesAndStrides::resize_outside(std::size_t ndim) {
  TENON_CHECK(ndim <= kMaxDims, "{} dimensions", ndim);
  if (ndim == ndim_) return;
  std::int64_t kept[2 * kMaxDims] = {};
  const std::size_t common = std::min<std::size_t>(ndim, ndim_);
  std::copy_n(sizes_data(), common, kept);
  std::copy_n(strides_data(), common, kept + ndim);
  std::int64_t* outside = ndim > kInlineDims ? new std::int64_t[2 * ndim] : nullptr;
  release();
  if (outside != nullptr) {
    std::copy_n(kept, 2 * ndim, outside);
    outside_ = outside;
  } else {
    std::copy_n(kept, ndim, inline_);
    std::copy_n(kept + ndim, ndim, inline_ + kInlineDims);
  }
  ndim_ = static_cast<std::uint8_t>(ndim);
}

}  // namespace tenon
