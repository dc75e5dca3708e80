#include "tenon/ops/kernels/vulkan/device_kernels.h"

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

constexpr std::uint32_t kTile = 64;  // of matmul.comp

struct MatmulArguments {
  std::uint64_t target, a, b;
  std::uint32_t m, n, k;
  std::uint32_t a_row, a_column, b_row, b_column;
  std::uint32_t a_batch, b_batch;
  std::uint32_t beta;  // 0 or 1
};

bool is_small(std::int64_t number) {
  return number >= 0 && number <= std::numeric_limits<std::int32_t>::max();
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
  const auto groups = [](std::int64_t size) {
    return static_cast<std::uint32_t>((size + kTile - 1) / kTile);
  };
  constexpr std::int64_t kMostInADimension = 65535;  // every device takes so many
  if (groups(m) > kMostInADimension || groups(n) > kMostInADimension || batch > kMostInADimension)
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
  launch(backend, {code, {}}, arguments, {groups(n), groups(m), word(batch)});
  return true;
}

}  // namespace tenon::vulkan
