#include "tenon/ops/kernels/vulkan/device_arrange.h"
#include "tenon/ops/kernels/vulkan/device_walks.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "tenon/ops/kernels/vulkan/launch_sizes.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
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
constexpr std::uint32_t kTexelsCode[] =
#include "matmul_texels_f32.spv.inc"
    ;
constexpr std::uint32_t kWindowTexelsCode[] =
#include "matmul_texels_f32_windows.spv.inc"
    ;

constexpr std::int64_t kTile = 64;       // of matmul.comp
constexpr std::int64_t kLanesTile = 32;  // of matmul_lanes.comp, and the rows of:
constexpr std::int64_t kTexelsColumns = 64;  // of matmul_texels.comp
constexpr std::int64_t kWindowsRows = 16;    // of it for windows

struct MatmulArguments {
  std::uint64_t target, a, b;
  std::uint32_t m, n, k;
  std::uint32_t a_row, a_column, b_row, b_column;
  std::uint32_t a_batch, b_batch;
  std::uint32_t beta;  // 0 or 1; of windows by matmul_texels.comp, the images
  std::int32_t height, width;  // of windows
  std::uint64_t bias;
};

bool is_small(std::int64_t number) {
  return number >= 0 && number <= std::numeric_limits<std::int32_t>::max();
}

// Whether neighbours in memory lie in pairs along one dimension of the matrix.
bool has_pairs(std::uint64_t address, std::int64_t along, std::int64_t along_stride,
               std::int64_t other_stride, std::int64_t batch_stride) {
  return along_stride == 1 && along % 2 == 0 && other_stride % 2 == 0 && batch_stride % 2 == 0 &&
         address % 8 == 0;
}

bool takes_lanes(const VulkanBackend& backend, const MatmulArguments& u, std::int64_t batch) {
  constexpr std::int64_t kLeastWork = 1 << 19;  // their pipelines take long to make
  return has_lanes(backend) && std::int64_t{u.m} * u.n * u.k * batch >= kLeastWork;
}

std::array<std::uint32_t, 3> lanes_groups(const MatmulArguments& u, std::int64_t batch) {
  return {groups_for(u.m, kLanesTile), groups_for(u.n, kLanesTile),
          static_cast<std::uint32_t>(batch)};
}

// Finds the texels of a matrix whose numbers lie in fours along one dimension. The distances to
// others become those between texels, and so does the address.
bool take_texels(const VulkanBackend& backend, const void* place, std::uint64_t& address,
                 std::uint32_t along, std::uint32_t& along_stride, std::uint32_t& other_stride,
                 std::uint32_t& batch_stride) {
  const auto first = backend.texel_at(place);
  if (!first || along_stride != 1 || along % 4 != 0 || other_stride % 4 != 0 ||
      batch_stride % 4 != 0)
    return false;
  address = *first;
  along_stride = 0;
  other_stride /= 4;
  batch_stride /= 4;
  return true;
}

bool take_a(const VulkanBackend& backend, MatmulArguments& u, const Tensor& a) {
  const void* place = place_to_read(a);
  return u.a_column != 1 ? take_texels(backend, place, u.a, u.m, u.a_row, u.a_column, u.a_batch)
                         : take_texels(backend, place, u.a, u.k, u.a_column, u.a_row, u.a_batch);
}
bool take_b(const VulkanBackend& backend, MatmulArguments& u, const Tensor& b) {
  const void* place = place_to_read(b);
  return u.b_row != 1 ? take_texels(backend, place, u.b, u.n, u.b_column, u.b_row, u.b_batch)
                      : take_texels(backend, place, u.b, u.k, u.b_row, u.b_column, u.b_batch);
}

// By matmul_texels.comp, where its tiles are not mostly beyond the border.
bool launch_texels(VulkanBackend& backend, MatmulArguments u, std::int64_t batch, const Tensor& a,
                   const Tensor& b) {
  constexpr std::int64_t kLeastColumns = 20;
  const bool rows_of_a = u.a_column != 1, columns_of_b = u.b_row != 1;
  if (!takes_lanes(backend, u, batch) || u.k % 4 != 0 || u.n < kLeastColumns ||
      !take_a(backend, u, a) || !take_b(backend, u, b))
    return false;
  launch(backend, {kTexelsCode, {rows_of_a ? 1u : 0u, columns_of_b ? 1u : 0u, u.beta}, true}, u,
         {groups_for(u.n, kTexelsColumns), groups_for(u.m, kLanesTile),
          static_cast<std::uint32_t>(batch)},
         {place_to_read(a), place_to_read(b)});
  return true;
}

bool launch_lanes(VulkanBackend& backend, const MatmulArguments& u, std::int64_t batch) {
  if (!takes_lanes(backend, u, batch) || u.k % 2 != 0) return false;
  const bool a_by_depth = has_pairs(u.a, u.k, u.a_column, u.a_row, u.a_batch);
  const bool b_by_depth = has_pairs(u.b, u.k, u.b_row, u.b_column, u.b_batch);
  if (!a_by_depth && !has_pairs(u.a, u.m, u.a_row, u.a_column, u.a_batch)) return false;
  if (!b_by_depth && !has_pairs(u.b, u.n, u.b_column, u.b_row, u.b_batch)) return false;
  launch(backend, {kLanesCode, {a_by_depth ? 0u : 1u, b_by_depth ? 0u : 1u, u.beta}}, u,
         lanes_groups(u, batch));
  return true;
}

// By matmul_texels.comp on copies that have texels, with zeros behind k, where that pays.
bool multiply_padded(VulkanBackend& backend, MatmulArguments u, std::int64_t batch, const Tensor& a,
                     const Tensor& b) {
  constexpr std::int64_t kOfCopy = 64;  // what an element costs, in products
  const std::int64_t m = u.m, n = u.n, k = u.k, row = in_fours(k);
  MatmulArguments as_it_is = u;
  const bool copies_a = k != row || !take_a(backend, as_it_is, a);
  const bool copies_b = k != row || !take_b(backend, as_it_is, b);
  if (kOfCopy * ((copies_a ? m * k : 0) + (copies_b ? k * n : 0)) > m * n * k) return false;
  const auto copied = [&](const Tensor& t, std::int64_t of_batch, std::int64_t lines,
                          std::int64_t apart, std::int64_t step) {
    return arrange(t,
                   {.batch = {batch, of_batch}, .j = {lines, apart}, .x = {k, step}, .row = row});
  };
  const Tensor left = copies_a ? copied(a, u.a_batch, m, u.a_row, u.a_column) : a;
  const Tensor right = copies_b ? copied(b, u.b_batch, n, u.b_column, u.b_row) : b;
  if (!left.defined() || !right.defined()) return false;
  const auto word = [](std::int64_t number) { return static_cast<std::uint32_t>(number); };
  u.k = word(row);
  if (copies_a) {
    u.a_column = 1;
    u.a_row = u.k;
    u.a_batch = word(m * row);
  }
  if (copies_b) {
    u.b_row = 1;
    u.b_column = u.k;
    u.b_batch = word(n * row);
  }
  return launch_texels(backend, u, batch, left, right);
}

}  // namespace

bool matmul(const Tensor& target, std::int64_t m, std::int64_t n, std::int64_t k, const Tensor& a,
            const MatrixStrides& a_strides, const Tensor& b, const MatrixStrides& b_strides,
            double beta) {
  if (n == 1 && m > 1)  // kernels have more columns than rows side by side
    return matmul(target, 1, m, k, b, {b_strides.column, b_strides.row, b_strides.batch}, a,
                  {a_strides.column, a_strides.row, a_strides.batch}, beta);
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
  if (groups_for(m, kLanesTile) > kMostGroups || groups_for(n, kLanesTile) > kMostGroups ||
      batch > kMostGroups || !may_loop(backend, k))
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
  if (target.dtype() == DType::kF32 && takes_lanes(backend, arguments, batch) &&
      (launch_texels(backend, arguments, batch, a, b) ||
       multiply_padded(backend, arguments, batch, a, b) ||
       launch_lanes(backend, arguments, batch)))
    return true;
  launch(backend, {code, {}}, arguments, {groups_for(n, kTile), groups_for(m, kTile), word(batch)});
  return true;
}

namespace {

bool is_one(const ops::Pair& p) { return p.height == 1 && p.width == 1; }

}  // namespace

bool is_one_by_one(const Windows& w) {
  return is_one(w.kernel) && is_one(w.stride) && w.padding.height == 0 && w.padding.width == 0;
}

bool is_three_by_three(const Windows& w) {
  return w.kernel.height == 3 && w.kernel.width == 3 && is_one(w.stride) && is_one(w.padding) &&
         is_one(w.dilation);
}

namespace {

// A convolution by matmul_texels.comp, where neighbouring places lie in fours that are texels of
// the image, too. The weight gets a texel for each row of a window.
bool launch_window_texels(VulkanBackend& backend, MatmulArguments u, std::int64_t batch,
                          const Windows& w, const Tensor& weight, const Tensor& images) {
  const auto first = backend.texel_at(place_to_read(images));
  if (!is_three_by_three(w) || w.width % 4 != 0 || !first) return false;
  u.k /= 9;  // channels
  const Tensor rows = arrange(weight, {.i = {u.m, 9 * std::int64_t{u.k}},
                                       .j = {3 * std::int64_t{u.k}, 3},
                                       .x = {3, 1},
                                       .row = 4});
  if (!rows.defined()) return false;
  const std::array<const void*, 2> texels = {place_to_read(rows), place_to_read(images)};
  const auto first_row = backend.texel_at(texels[0]);
  if (!first_row) return false;
  u.a = *first_row;
  u.a_row = 3 * u.k;
  u.b = *first;
  u.b_batch /= 4;
  const std::int64_t most = kMostGroups * kTexelsColumns / u.n;  // images of a launch
  for (std::int64_t done = 0; done < batch; done += most) {
    const std::int64_t count = std::min(most, batch - done);
    u.beta = static_cast<std::uint32_t>(count);
    launch(backend, {kWindowTexelsCode, {0, 0, u.bias != 0 ? 1u : 0u}, true}, u,
           {groups_for(u.n * count, kTexelsColumns), groups_for(u.m, kWindowsRows), 1}, texels);
    u.b += static_cast<std::uint64_t>(count) * u.b_batch;
    u.target += static_cast<std::uint64_t>(count) * u.m * u.n * sizeof(float);
  }
  return true;
}

}  // namespace

bool reads_windows(Device device) { return has_lanes(vulkan_backend(device.index)); }

bool convolve(const Tensor& target, const Tensor& weight, const Tensor& images, const Windows& w,
              const Tensor& bias) {
  VulkanBackend& backend = vulkan_backend(target.device().index);
  const std::int64_t batch = images.size(0), filters = weight.size(0);
  if (target.dtype() != DType::kF32 || target.numel() == 0 || weight.device() != target.device() ||
      !is_small(target.numel()) || !is_small(images.numel()) || !is_small(weight.numel()) ||
      w.out_height * w.out_width > kMostGroups * kLanesTile || batch > kMostGroups ||
      filters > kMostGroups * kLanesTile)
    return false;
  MatmulArguments u = {};
  u.m = static_cast<std::uint32_t>(filters);
  u.n = static_cast<std::uint32_t>(w.out_height * w.out_width);
  u.k = static_cast<std::uint32_t>(weight.numel() / filters);
  u.b_batch = static_cast<std::uint32_t>(images.numel() / batch);
  u.height = static_cast<std::int32_t>(w.height);
  u.width = static_cast<std::int32_t>(w.width);
  if (!takes_lanes(backend, u, batch) || !may_loop(backend, u.k) ||
      takes_groups(walks_of(w), filters, weight.size(1)))
    return false;
  if (bias.defined()) u.bias = address_to_read(backend, bias);
  if (is_one_by_one(w) && u.n % 64 == 0 && !bias.defined()) {
    const MatrixStrides of_weight{u.k, 1, 0}, of_images{u.n, 1, u.b_batch};
    return matmul(target, u.m, u.n, u.k, weight, of_weight, images, of_images, 0);
  }
  u.target = address_to_write(backend, target);
  return launch_window_texels(backend, u, batch, w, weight, images);
}

}  // namespace tenon::vulkan
