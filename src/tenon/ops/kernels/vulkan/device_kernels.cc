#include "tenon/ops/kernels/vulkan/device_kernels.h"

#include <array>
#include <limits>
#include <span>

#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::vulkan {
namespace {

constexpr std::uint32_t kF32Code[] =
#include "matmul_f32_plain.spv.inc"
    ;
constexpr std::uint32_t kF64Code[] =
#include "matmul_f64.spv.inc"
    ;
constexpr std::uint32_t kI64Code[] =
#include "matmul_i64.spv.inc"
    ;

constexpr std::uint32_t kLanesCode[] =
#include "matmul_lanes_f32.spv.inc"
    ;
constexpr std::uint32_t kWideLanesCode[] =
#include "matmul_lanes_f32_wide.spv.inc"
    ;

constexpr std::int64_t kTile = 64;       // of matmul.comp
constexpr std::int64_t kLanesTile = 32;  // of matmul_lanes.comp; twice as wide in its wide form

struct MatmulArguments {
  std::uint64_t target, a, b;
  std::uint32_t m, n, k;
  std::uint32_t a_row, a_column, b_row, b_column;
  std::uint32_t a_batch, b_batch;
  std::uint32_t beta;  // 0 or 1
  // Of windows, by matmul_lanes.comp alone.
  std::int32_t height, width, out_width;
  std::int32_t kernel[2], stride[2], padding[2], dilation[2];
  std::int32_t filling;  // C++ rounds to the alignment of the addresses
};

std::uint32_t groups_for(std::int64_t size, std::int64_t tile) {
  return static_cast<std::uint32_t>((size + tile - 1) / tile);
}

bool is_small(std::int64_t number) {
  return number >= 0 && number <= std::numeric_limits<std::int32_t>::max();
}

// Whether neighbours in memory lie in pairs along one dimension of the matrix.
bool has_pairs(std::uint64_t address, std::int64_t along, std::int64_t along_stride,
               std::int64_t other_stride, std::int64_t batch_stride) {
  return along_stride == 1 && along % 2 == 0 && other_stride % 2 == 0 && batch_stride % 2 == 0 &&
         address % 8 == 0;
}

// Whether matmul_lanes.comp computes it, and pays.
bool takes_lanes(const VulkanBackend& backend, const MatmulArguments& u, std::int64_t batch) {
  constexpr std::int64_t kLeastWork = 1 << 20;  // its pipeline takes long to make
  return backend.abilities().lanes == 8 && backend.abilities().integers && u.k % 2 == 0 &&
         std::int64_t{u.m} * u.n * u.k * batch >= kLeastWork;
}

std::array<std::uint32_t, 3> lanes_groups(const MatmulArguments& u, std::int64_t batch,
                                          std::int64_t columns = kLanesTile) {
  return {groups_for(u.m, kLanesTile), groups_for(u.n, columns),
          static_cast<std::uint32_t>(batch)};
}

// Whether the wide form computes it, and few of its columns lie beyond the border.
bool is_wide(const MatmulArguments& u) {
  const std::int64_t beyond = groups_for(u.n, 2 * kLanesTile) * 2 * kLanesTile - u.n;
  return u.k % 4 == 0 && beyond <= u.n / 8;
}

bool launch_lanes(VulkanBackend& backend, const MatmulArguments& u, std::int64_t batch) {
  if (!takes_lanes(backend, u, batch)) return false;
  const bool a_by_depth = has_pairs(u.a, u.k, u.a_column, u.a_row, u.a_batch);
  const bool b_by_depth = has_pairs(u.b, u.k, u.b_row, u.b_column, u.b_batch);
  if (!a_by_depth && !has_pairs(u.a, u.m, u.a_row, u.a_column, u.a_batch)) return false;
  if (!b_by_depth && !has_pairs(u.b, u.n, u.b_column, u.b_row, u.b_batch)) return false;
  const bool wide = is_wide(u);
  launch(backend,
         {wide ? std::span<const std::uint32_t>(kWideLanesCode) : kLanesCode,
          {a_by_depth ? 0u : 1u, b_by_depth ? 0u : 1u, u.beta}},
         u, lanes_groups(u, batch, wide ? 2 * kLanesTile : kLanesTile));
  return true;
}

}  // namespace

bool matmul(const Tensor& target, std::int64_t m, std::int64_t n, std::int64_t k, const Tensor& a,
            const MatrixStrides& a_strides, const Tensor& b, const MatrixStrides& b_strides,
            double beta) {
  const Device device = target.device();
  if (a.device() != device || b.device() != device) return false;
  VulkanBackend& backend = vulkan_backend(device.index);
  const VulkanAbilities& has = backend.abilities();
  std::span<const std::uint32_t> code;
  if (target.dtype() == DType::kF32)
    code = kF32Code;
  else if (target.dtype() == DType::kF64 && has.integers && has.f64)
    code = kF64Code;
  else if (target.dtype() == DType::kI64 && has.integers)
    code = kI64Code;
  else
    return false;
  const std::int64_t batch = target.numel() / (m * n);
  const auto reaches = [&](const MatrixStrides& strides, std::int64_t rows, std::int64_t columns) {
    return strides.row * rows + strides.column * columns + strides.batch * batch;
  };
  if (!is_small(target.numel()) || !is_small(reaches(a_strides, m, k)) ||
      !is_small(reaches(b_strides, k, n)))
    return false;
  constexpr std::int64_t kMostInADimension = 65535;  // every device takes so many
  if (groups_for(m, kLanesTile) > kMostInADimension ||
      groups_for(n, kLanesTile) > kMostInADimension || batch > kMostInADimension)
    return false;
  const auto word = [](std::int64_t number) { return static_cast<std::uint32_t>(number); };
  MatmulArguments arguments = {};
  arguments.target = address_to_write(backend, target);
  arguments.a = address_to_read(backend, a);
  arguments.b = address_to_read(backend, b);
  arguments.m = word(m);
  arguments.n = word(n);
  arguments.k = word(k);
  arguments.a_row = word(a_strides.row);
  arguments.a_column = word(a_strides.column);
  arguments.b_row = word(b_strides.row);
  arguments.b_column = word(b_strides.column);
  arguments.a_batch = word(a_strides.batch);
  arguments.b_batch = word(b_strides.batch);
  arguments.beta = beta == 0 ? 0 : 1;
  if (target.dtype() == DType::kF32 && launch_lanes(backend, arguments, batch)) return true;
  launch(backend, {code, {}}, arguments, {groups_for(n, kTile), groups_for(m, kTile), word(batch)});
  return true;
}

bool convolve(const Tensor& target, const Tensor& weight, const Tensor& images, const Windows& w) {
  VulkanBackend& backend = vulkan_backend(target.device().index);
  const std::int64_t batch = images.size(0), filters = weight.size(0);
  constexpr std::int64_t kMostGroups = 65535;  // in a dimension, on every device
  if (target.dtype() != DType::kF32 || target.numel() == 0 || weight.device() != target.device() ||
      !is_small(target.numel()) || !is_small(images.numel()) || !is_small(weight.numel()) ||
      w.out_height * w.out_width > kMostGroups * kLanesTile || batch > kMostGroups ||
      filters > kMostGroups * kLanesTile)
    return false;
  const auto number = [](std::int64_t n) { return static_cast<std::int32_t>(n); };
  const auto set = [&](std::int32_t (&to)[2], std::int64_t height, std::int64_t width) {
    if (!is_small(height) || !is_small(width)) return false;
    to[0] = number(height);
    to[1] = number(width);
    return true;
  };
  MatmulArguments u = {};
  u.m = static_cast<std::uint32_t>(filters);
  u.n = static_cast<std::uint32_t>(w.out_height * w.out_width);
  u.k = static_cast<std::uint32_t>(weight.numel() / filters);
  u.a_row = u.k;
  u.a_column = 1;
  u.b_batch = static_cast<std::uint32_t>(images.numel() / batch);
  u.height = number(w.height);
  u.width = number(w.width);
  u.out_width = number(w.out_width);
  if (!takes_lanes(backend, u, batch) ||
      !set(u.kernel, w.kernel.height * w.dilation.height, w.kernel.width * w.dilation.width) ||
      !set(u.stride, w.stride.height, w.stride.width) ||
      !set(u.padding, w.padding.height, w.padding.width) ||
      !set(u.dilation, w.dilation.height, w.dilation.width))
    return false;
  u.a = address_to_read(backend, weight);
  if (!has_pairs(u.a, u.k, 1, u.a_row, 0)) return false;
  u.b = address_to_read(backend, images);
  u.target = address_to_write(backend, target);
  const bool by_rows = w.kernel.width == 3 && w.dilation.width == 1 && w.stride.width == 1 &&
                       w.out_width % 4 == 0 && u.k % 6 == 0;
  launch(backend, {kLanesCode, {0, 0, 0, by_rows ? 2u : 1u}}, u, lanes_groups(u, batch));
  return true;
}

}  // namespace tenon::vulkan
