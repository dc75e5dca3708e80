// Convolutions in groups of a few filters, by group_windows.comp.
#include <algorithm>
#include <array>
#include <span>

#include "tenon/ops/kernels/vulkan/device_walks.h"
#include "tenon/ops/kernels/vulkan/launch_sizes.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::vulkan {
namespace {

constexpr std::uint32_t kPlacesCode[] =
#include "group_windows_f32.spv.inc"
    ;
constexpr std::uint32_t kSumsCode[] =
#include "group_windows_f32_sums.spv.inc"
    ;

constexpr std::int64_t kTall = 4, kPlaces = 8;           // of a lane's step, as the kernel has them
constexpr std::int64_t kMostSpan = 32, kMostTaps = 64;
constexpr std::int64_t kMostFilters = 4;  // of a group; with more, tiles of a product cost less
constexpr std::int64_t kMostRounds = 65535;  // of a lane's loops: see may_loop
constexpr std::int64_t kMostSteps = 4096;    // of sums in f32, which lose places
constexpr std::uint32_t kAnywhere = 4;       // in a texel

struct Arguments {
  std::uint64_t target;
  std::int32_t first_a, last_a, first_b, last_b;
  std::int32_t images, first_image, filters, of_group;
  std::int32_t height, width, places_down, places_across;
  std::int32_t top, left, weight_row;
  std::int32_t target_image, target_filter, target_y, target_x;
  std::uint64_t bias;
};

std::uint32_t bytes(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
  return static_cast<std::uint32_t>(a | b << 8 | c << 16 | d << 24);
}
std::int64_t lines_of(const Walks& w) { return (w.across.places + kPlaces - 1) / kPlaces; }

Arguments arguments_of(const Walks& w, std::int64_t filters, std::int64_t groups) {
  Arguments u = {};
  u.filters = word(filters);
  u.of_group = word(filters / groups);
  u.height = word(w.down.size);
  u.width = word(w.across.size);
  u.places_down = word(w.down.places);
  u.places_across = word(w.across.places);
  u.top = word(w.down.first);
  u.left = word(w.across.first);
  return u;
}

// The texels of a tensor that its kernel may read.
bool find_texels(VulkanBackend& backend, const Tensor& t, std::int32_t& first,
                 std::int32_t& last) {
  const auto found = backend.texel_at(place_to_read(t));
  if (!found) return false;
  first = word(*found);
  last = word(*found + (t.numel() - 1) / 4);
  return true;
}

VulkanKernel kernel_of(std::span<const std::uint32_t> code, const Walks& w, std::int64_t channels,
                       bool adds) {
  const Walk &y = w.down, &x = w.across;
  return {code,
          {bytes(y.taps, x.taps, y.step, x.step),
           bytes(y.apart, x.apart, x.size % 4 == 0 ? x.first & 3 : kAnywhere,
                 x.places % 4 == 0 ? 0 : kAnywhere),
           static_cast<std::uint32_t>(channels), adds ? 1u : 0u},
          true};
}

}  // namespace

bool takes_groups(const Walks& w, std::int64_t rows, std::int64_t channels) {
  constexpr std::int64_t kMostByte = 255;
  constexpr std::int64_t kLeastTaps = 4;  // that pay for the loop over channels
  const Walk &y = w.down, &x = w.across;
  return rows <= kMostFilters && (channels == 1 || y.taps * x.taps >= kLeastTaps) &&
         y.taps * x.taps <= kMostTaps && y.step <= kMostByte &&
         y.apart <= kMostByte &&
         (kPlaces - 1) * x.step + (x.taps - 1) * x.apart + 1 <= kMostSpan &&
         (kTall - 1) * y.step + (y.taps - 1) * y.apart + 1 <= kMostSpan;
}

bool convolve_groups(const Tensor& target, const Layout& layout, const Tensor& weight,
                     const Tensor& images, const Walks& w, std::int64_t groups,
                     const Tensor& bias) {
  VulkanBackend& backend = vulkan_backend(target.device().index);
  const std::int64_t filters = weight.size(0), channels = weight.size(1);
  const std::int64_t lines = filters * lines_of(w);
  if (groups_for(w.down.places, kTall) * (channels + 1) > kMostRounds || lines > 8 * kMostGroups)
    return false;
  const Tensor factors = in_texels(backend, weight, filters * channels);
  Arguments u = arguments_of(w, filters, groups);
  if (!factors.defined() || !find_texels(backend, factors, u.first_a, u.last_a) ||
      !find_texels(backend, images, u.first_b, u.last_b))
    return false;
  u.weight_row = word((w.down.taps * w.across.taps + 3) / 4);
  u.target_image = word(layout.image);
  u.target_filter = word(layout.filter);
  u.target_y = word(layout.y);
  u.target_x = word(layout.x);
  if (bias.defined()) u.bias = address_to_read(backend, bias);
  const std::array<const void*, 2> texels = {place_to_read(factors), place_to_read(images)};
  u.target =
      address_to_write(backend, target) + sizeof(float) * static_cast<std::uint64_t>(layout.first);
  const std::int64_t most = 8 * kMostGroups / lines;  // images of a launch
  for (std::int64_t done = 0; done < images.size(0); done += most) {
    const std::int64_t count = std::min(most, images.size(0) - done);
    u.images = word(count);
    u.first_image = word(done);
    launch(backend, kernel_of(kPlacesCode, w, channels, bias.defined()), u,
           {groups_for(count * lines, 8), 1, 1}, texels);
  }
  return true;
}

bool correlate_groups(const Tensor& target, const Tensor& gradient, const Tensor& images,
                      const Walks& w, std::int64_t groups) {
  VulkanBackend& backend = vulkan_backend(target.device().index);
  const std::int64_t filters = target.size(0), channels = target.size(1);
  const std::int64_t lines = lines_of(w), steps = groups_for(w.down.places, kTall) + 1;
  const std::int64_t most = 8 * (kMostSteps / steps) / lines;  // images of a launch
  Arguments u = arguments_of(w, filters, groups);
  if (most == 0 || filters > kMostGroups || channels > kMostGroups ||
      !find_texels(backend, gradient, u.first_a, u.last_a) ||
      !find_texels(backend, images, u.first_b, u.last_b))
    return false;
  u.target = address_to_write(backend, target);
  const std::array<const void*, 2> texels = {place_to_read(gradient), place_to_read(images)};
  for (std::int64_t done = 0; done < images.size(0); done += most) {
    u.images = word(std::min(most, images.size(0) - done));
    u.first_image = word(done);
    launch(backend, kernel_of(kSumsCode, w, channels, done != 0), u,
           {static_cast<std::uint32_t>(channels), static_cast<std::uint32_t>(filters), 1}, texels);
  }
  return true;
}

}  // namespace tenon::vulkan
