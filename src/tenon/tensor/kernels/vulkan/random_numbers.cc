#include "tenon/tensor/kernels/vulkan/random_numbers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tenon/tensor/kernels/vulkan/capturing.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::vulkan {
namespace {

constexpr std::uint32_t kPlainCode[] =
#include "random_f32_plain.spv.inc"
    ;
constexpr std::uint32_t kF64Code[] =
#include "random_f64.spv.inc"
    ;

constexpr std::uint32_t kInvocations = 64;  // of a group
constexpr std::uint32_t kMostGroups = 4096;

struct Arguments {
  std::uint64_t target, start, key, first, second;
  std::uint32_t count, filling;
};

// Whether f32 and words of 32 bits give the host's numbers.
bool is_plain(RandomKind kind, double first, double second, DType dtype) {
  const bool is_whole = dtype == DType::kI32 || dtype <= DType::kI8;
  if (kind == RandomKind::kBernoulli) return is_whole || dtype == DType::kF32;
  return kind == RandomKind::kUniform && dtype == DType::kF32 && first == 0 && second == 1;
}

}  // namespace

bool random_numbers(RandomKind kind, double first, double second, const Tensor& target,
                    Generator& generator, std::uint64_t start) {
  VulkanBackend& backend = vulkan_backend(target.device().index);
  const VulkanAbilities& has = backend.abilities();
  const bool plain = is_plain(kind, first, second, target.dtype());
  if ((!plain && !(has.integers && has.f64)) || target.dtype() > DType::kF64 ||
      target.numel() > std::numeric_limits<std::int32_t>::max())
    return false;
  Arguments arguments = {};
  arguments.target = address_to_write(backend, target);
  const bool changes = is_captured(target.device());
  arguments.start = changes ? changing_draw(generator, start) : start;
  arguments.key = generator.seed();
  if (kind == RandomKind::kBernoulli) {  // of the 2^53 numbers, how many are below
    arguments.first = static_cast<std::uint64_t>(std::ceil(std::ldexp(first, 53)));
  } else {
    arguments.first = std::bit_cast<std::uint64_t>(first);
    arguments.second =
        std::bit_cast<std::uint64_t>(kind == RandomKind::kUniform ? second - first : second);
  }
  arguments.count = static_cast<std::uint32_t>(target.numel());
  const std::uint32_t groups = arguments.count / (2 * kInvocations) + 1;
  launch(backend,
         {plain ? std::span<const std::uint32_t>(kPlainCode) : kF64Code,
          {static_cast<std::uint32_t>(kind), static_cast<std::uint32_t>(target.dtype()),
           changes ? 1u : 0u}},
         arguments, {std::min(groups, kMostGroups), 1, 1});
  return true;
}

}  // namespace tenon::vulkan
