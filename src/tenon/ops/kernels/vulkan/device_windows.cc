#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <span>

#include "tenon/ops/kernels/vulkan/device_kernels.h"
#include "tenon/tensor/kernels/vulkan/capturing.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::vulkan {
namespace {

constexpr std::uint32_t kF32Code[] =
#include "windows_f32_plain.spv.inc"
    ;
constexpr std::uint32_t kF64Code[] =
#include "windows_f64.spv.inc"
    ;

constexpr std::uint32_t kInvocations = 64;  // of a group
constexpr std::uint32_t kMostGroups = 4096;

struct Arguments {
  std::uint64_t target, source, weight;
  std::uint32_t count;
  std::int32_t images, all_channels, first_channel, channels;
  std::int32_t height, width, kernel[2], stride[2], padding[2], dilation[2], out[2];
  std::uint32_t filling;  // C++ rounds to the alignment of the addresses
};

void set(std::int32_t (&to)[2], const ops::Pair& pair) {
  to[0] = static_cast<std::int32_t>(pair.height);
  to[1] = static_cast<std::int32_t>(pair.width);
}

}  // namespace

bool windows(WindowWork work, const Tensor& target, const Tensor& source, const Windows& w,
             std::int64_t images, std::int64_t all_channels, std::int64_t first_channel,
             std::int64_t channels, const Tensor& weight) {
  VulkanBackend& backend = vulkan_backend(target.device().index);
  const VulkanAbilities& has = backend.abilities();
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  std::span<const std::uint32_t> code;
  if (source.dtype() == DType::kF32)
    code = kF32Code;
  else if (source.dtype() == DType::kF64 && has.integers && has.f64)
    code = kF64Code;
  else
    return false;
  const auto fits = [](const ops::Pair& p) {
    return p.height <= kMost / 4 && p.width <= kMost / 4;
  };
  if (target.numel() > kMost || source.numel() > kMost || !fits(w.kernel) || !fits(w.stride) ||
      !fits(w.padding) || !fits(w.dilation))
    return false;
  Arguments arguments = {};
  arguments.target = address_to_write(backend, target);
  arguments.source = address_to_read(backend, source);
  if (weight.defined()) arguments.weight = address_to_read(backend, weight);
  const bool by_fours = work == WindowWork::kToColumns && source.dtype() == DType::kF32 &&
                        w.out_width % 4 == 0 && arguments.target % 16 == 0;
  arguments.count = static_cast<std::uint32_t>(
      work == WindowWork::kToImage ? images * channels * w.height * w.width
      : work == WindowWork::kToColumns
          ? images * channels * w.out_height * w.out_width / (by_fours ? 4 : 1)
          : target.numel());
  arguments.images = static_cast<std::int32_t>(images);
  arguments.all_channels = static_cast<std::int32_t>(all_channels);
  arguments.first_channel = static_cast<std::int32_t>(first_channel);
  arguments.channels = static_cast<std::int32_t>(channels);
  arguments.height = static_cast<std::int32_t>(w.height);
  arguments.width = static_cast<std::int32_t>(w.width);
  set(arguments.kernel, w.kernel);
  set(arguments.stride, w.stride);
  set(arguments.padding, w.padding);
  set(arguments.dilation, w.dilation);
  set(arguments.out, {w.out_height, w.out_width});
  const std::uint32_t groups = (arguments.count + kInvocations - 1) / kInvocations;
  launch(backend,
         {code,
          {static_cast<std::uint32_t>(work), w.is_adaptive ? 1u : 0u, w.counts_padding ? 1u : 0u,
           by_fours ? 1u : 0u}},
         arguments, {std::min(groups, kMostGroups), 1, 1});
  return true;
}

// --- Steps of optimisers.

namespace {

constexpr std::uint32_t kUpdateF32Code[] =
#include "update_f32_plain.spv.inc"
    ;
constexpr std::uint32_t kUpdateF64Code[] =
#include "update_f64.spv.inc"
    ;

struct UpdateArguments {
  std::uint64_t parameter, gradient, first_state, second_state;
  std::array<std::uint64_t, 9> numbers;
  std::uint64_t factor;
  std::uint32_t count, filling;
};

}  // namespace

bool update(UpdateKind kind, const Tensor& parameter, const Tensor& gradient, const Tensor& first,
            const Tensor& second, const Tensor& factor, const UpdateNumbers& numbers,
            const std::function<UpdateNumbers()>& next) {
  VulkanBackend& backend = vulkan_backend(parameter.device().index);
  const VulkanAbilities& has = backend.abilities();
  const bool in_f64 = parameter.dtype() == DType::kF64;
  if ((in_f64 && !(has.integers && has.f64)) || gradient.device() != parameter.device() ||
      parameter.numel() > std::numeric_limits<std::int32_t>::max())
    return false;
  UpdateArguments arguments = {};
  arguments.parameter = address_to_write(backend, parameter);
  arguments.gradient = address_to_read(backend, gradient);
  if (first.defined()) arguments.first_state = address_to_write(backend, first);
  if (second.defined()) arguments.second_state = address_to_write(backend, second);
  if (factor.defined()) arguments.factor = address_to_read(backend, factor);
  const auto put = [in_f64](const UpdateNumbers& from, std::span<std::uint64_t> to) {
    for (std::size_t i = 0; i < from.size(); ++i)
      to[i] = in_f64 ? std::bit_cast<std::uint64_t>(from[i])
                     : std::bit_cast<std::uint32_t>(static_cast<float>(from[i]));
  };
  put(numbers, arguments.numbers);
  const bool changes = is_captured(parameter.device());
  if (changes)
    arguments.numbers[0] =
        changing_numbers(arguments.numbers, [put, next](auto to) { put(next(), to); });
  arguments.count = static_cast<std::uint32_t>(parameter.numel());
  const std::uint32_t groups = (arguments.count + kInvocations - 1) / kInvocations;
  launch(backend,
         {in_f64 ? std::span<const std::uint32_t>(kUpdateF64Code) : kUpdateF32Code,
          {static_cast<std::uint32_t>(kind), changes ? 1u : 0u}},
         arguments, {std::min(groups, kMostGroups), 1, 1});
  return true;
}

}  // namespace tenon::vulkan
