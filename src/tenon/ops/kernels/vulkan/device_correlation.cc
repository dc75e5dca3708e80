#include <algorithm>
#include <array>
#include <limits>

#include "tenon/ops/kernels/vulkan/device_walks.h"
#include "tenon/ops/kernels/vulkan/launch_sizes.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::vulkan {
namespace {

constexpr std::uint32_t kCode[] =
#include "correlate_f32.spv.inc"
    ;

constexpr std::int64_t kFilters = 32, kRows = 16;  // of a group
constexpr std::int64_t kMostSteps = 16384;  // of a launch: long sums of f32 lose places

struct Arguments {
  std::uint64_t target;
  std::uint32_t gradient, images;
  std::uint32_t filters, kernel_rows, count;
  std::int32_t height, row, filling;  // C++ rounds to the alignment of the address
};

}  // namespace

bool correlate(const Tensor& target, const Tensor& gradient, const Tensor& images,
               const Windows& w) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  VulkanBackend& backend = vulkan_backend(target.device().index);
  const std::int64_t filters = target.size(0), kernel_rows = 3 * target.size(1);
  const std::int64_t plane = w.height * (w.width / 4);
  if (target.dtype() != DType::kF32 || !is_three_by_three(w) || w.width % 4 != 0 ||
      !has_lanes(backend) || plane > kMostSteps ||
      takes_groups(walks_of(w), filters, target.size(1)) ||
      4 * plane * images.size(0) * std::max(filters, kernel_rows) > kMost)
    return false;
  const std::array<const void*, 2> texels = {place_to_read(gradient), place_to_read(images)};
  const auto first_a = backend.texel_at(texels[0]), first_b = backend.texel_at(texels[1]);
  if (!first_a || !first_b) return false;
  const auto word = [](std::int64_t number) { return static_cast<std::uint32_t>(number); };
  Arguments u = {};
  u.target = address_to_write(backend, target);
  u.gradient = static_cast<std::uint32_t>(*first_a);
  u.images = static_cast<std::uint32_t>(*first_b);
  u.filters = word(filters);
  u.kernel_rows = word(kernel_rows);
  u.height = static_cast<std::int32_t>(w.height);
  u.row = static_cast<std::int32_t>(plane / w.height);
  const std::int64_t most = kMostSteps / plane;
  for (std::int64_t done = 0; done < images.size(0); done += most) {
    u.count = word(std::min(most, images.size(0) - done));
    launch(backend, {kCode, {done == 0 ? 0u : 1u}, true}, u,
           {groups_for(kernel_rows, kRows), groups_for(filters, kFilters), 1}, texels);
    u.gradient += word(most * filters * plane);
    u.images += word(most * target.size(1) * plane);
  }
  return true;
}

}  // namespace tenon::vulkan
