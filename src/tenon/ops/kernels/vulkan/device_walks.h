// How kernels for convolutions walk over images. Private to the sources beside it.
#pragma once

#include "tenon/ops/kernels/vulkan/device_kernels.h"

namespace tenon::vulkan {

// A window's walk along one dimension of an image.
struct Walk {
  std::int64_t size = 0;    // of the image
  std::int64_t places = 0;  // of windows
  std::int64_t taps = 0;    // of a window
  std::int64_t step = 1;    // between places
  std::int64_t apart = 1;   // between taps
  std::int64_t first = 0;   // what the first place sees by its first tap
};

struct Walks {
  Walk down, across;
};

// Where the places of a result lie, in elements.
struct Layout {
  std::int64_t first = 0, image = 0, filter = 0, y = 0, x = 0;
};

Walks walks_of(const Windows& w);

// The numbers of a contiguous weight as rows that begin at texels; undefined where it has none.
Tensor in_texels(VulkanBackend& backend, const Tensor& weight, std::int64_t rows);

// Whether group_windows.comp takes such walks, and pays for so many filters and channels of a
// group.
bool takes_groups(const Walks& w, std::int64_t rows, std::int64_t channels);
// target = the convolution of the images by the weight [filters, channels of a group, taps down,
// taps across], and the weight's gradient; both f32 and contiguous, but for the target of the
// first. False, and nothing has happened, where something has no texels.
bool convolve_groups(const Tensor& target, const Layout& layout, const Tensor& weight,
                     const Tensor& images, const Walks& w, std::int64_t groups,
                     const Tensor& bias);
bool correlate_groups(const Tensor& target, const Tensor& gradient, const Tensor& images,
                      const Walks& w, std::int64_t groups);

}  // namespace tenon::vulkan
