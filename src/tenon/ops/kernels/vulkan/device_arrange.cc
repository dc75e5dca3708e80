#include "tenon/ops/kernels/vulkan/device_arrange.h"

#include <algorithm>
#include <array>
#include <limits>

#include "tenon/ops/kernels/vulkan/launch_sizes.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::vulkan {
namespace {

constexpr std::uint32_t kCode[] =
#include "arrange_f32.spv.inc"
    ;

constexpr std::int64_t kLines = 16, kLanes = 8;  // of a group
constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
constexpr std::uintptr_t kTexelBytes = 16;

struct Arguments {
  std::uint64_t target;
  std::int32_t first_texel, first;
  std::int32_t lines, across, height, width, row;
  std::int32_t batch_step, i_step, j_step, y_step, x_step;
};

}  // namespace

Tensor arrange(const Tensor& source, const Arrangement& a) {
  VulkanBackend& backend = vulkan_backend(source.device().index);
  const std::uint32_t x = groups_for(a.i.size, kLines), y = groups_for(a.j.size, kLanes);
  const std::int64_t numel = a.batch.size * a.i.size * a.j.size * a.y.size * a.row;
  if (source.dtype() != DType::kF32 || numel == 0 || numel > kMost || source.numel() > kMost ||
      std::max<std::int64_t>({x, y, a.batch.size}) > kMostGroups ||
      !may_loop(backend, std::min(kLines, a.i.size) * (a.y.size * (a.row + 1) + 1)))
    return {};
  const auto* place = static_cast<const std::byte*>(place_to_read(source));
  const std::uintptr_t behind = reinterpret_cast<std::uintptr_t>(place) % kTexelBytes;
  const std::array<const void*, 2> texels = {place - behind, place - behind};
  const auto first = backend.texel_at(texels[0]);
  if (!first) return {};
  const Tensor to = empty({a.batch.size, a.i.size, a.j.size, a.y.size, a.row}, DType::kF32,
                          source.device());
  Arguments u = {};
  u.target = address_to_write(backend, to);
  u.first_texel = word(*first);
  u.first = word(a.first + static_cast<std::int64_t>(behind / sizeof(float)));
  u.lines = word(a.i.size);
  u.across = word(a.j.size);
  u.height = word(a.y.size);
  u.width = word(a.x.size);
  u.row = word(a.row);
  u.batch_step = word(a.batch.step);
  u.i_step = word(a.i.step);
  u.j_step = word(a.j.step);
  u.y_step = word(a.y.step);
  u.x_step = word(a.x.step);
  launch(backend, {kCode, {}, true}, u, {x, y, static_cast<std::uint32_t>(a.batch.size)}, texels);
  return to;
}

}  // namespace tenon::vulkan
