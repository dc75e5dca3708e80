#include "tenon/ops/kernels/vulkan/device_kernels.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "tenon/device/vulkan/vulkan_backend.h"
#include "tenon/tensor/strided_loop.h"

namespace tenon::ops::vulkan {
namespace {

constexpr std::uint32_t kElementwiseCode[] =
#include "elementwise.spv.inc"
    ;
constexpr std::uint32_t kMatmulCode[] =
#include "matmul.spv.inc"
    ;

constexpr std::uint32_t kInvocations = 128;  // of a group of elementwise.comp
constexpr std::uint32_t kMostGroups = 4096;  // each then does several elements
constexpr std::uint32_t kTile = 64;          // of matmul.comp
constexpr std::size_t kDims = 4;

struct ElementwiseArguments {
  std::uint64_t target, a, b;
  std::uint32_t count;
  float first, second;
  std::uint32_t sizes[kDims];
  std::int32_t strides[3][kDims];
  std::uint32_t padding;  // C++ rounds to the alignment of the addresses
};

struct MatmulArguments {
  std::uint64_t target, a, b;
  std::uint32_t m, n, k;
  std::uint32_t a_row, a_column, b_row, b_column;
  std::uint32_t a_batch, b_batch;
  float beta;
};

template <typename Arguments>
std::span<const std::byte> bytes_of(const Arguments& arguments) {
  return std::as_bytes(std::span(&arguments, 1));
}

bool is_small(std::int64_t number) {
  return number >= 0 && number <= std::numeric_limits<std::int32_t>::max();
}

// The first element, as the host has its address.
char* address_to_write(const Tensor& t) {
  return static_cast<char*>(t.storage().impl()->mutable_data_in_stream()) +
         t.storage_offset() * static_cast<std::int64_t>(t.item_size());
}
const char* address_to_read(const Tensor& t) {
  return static_cast<const char*>(t.storage().impl()->data_in_stream()) +
         t.storage_offset() * static_cast<std::int64_t>(t.item_size());
}

}  // namespace

bool elementwise(DeviceFunction function, const double* numbers, const Tensor& target,
                 std::initializer_list<const Tensor*> inputs) {
  const Device device = target.device();
  if (function == DeviceFunction::kNone || !is_small(target.numel()) ||
      target.dtype() != DType::kF32)
    return false;
  std::array<const Tensor*, 2> on_device{};
  std::size_t count = 0;
  std::uint32_t number_at = 0;  // which input is a number, from 1
  double first = numbers == nullptr ? 0 : numbers[0];
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = *inputs.begin()[i];
    if (inputs.size() == 2 && number_at == 0 && input.dim() == 0 && input.device() == Device{}) {
      number_at = static_cast<std::uint32_t>(i + 1);
      first = input.item<double>();
    } else if (input.dtype() == DType::kF32 && input.device() == device) {
      on_device[count++] = &input;
    } else {
      return false;
    }
  }
  if (count == 0) return false;
  std::array<StridedLoop::Operand, 3> operands;
  operands[0] = {address_to_write(target), target.sizes(), target.strides(), 4};
  for (std::size_t i = 0; i < count; ++i)
    operands[i + 1] = {const_cast<char*>(address_to_read(*on_device[i])), on_device[i]->sizes(),
                       on_device[i]->strides(), 4};
  const StridedLoop loop(target.sizes(), operands.data(), ++count);
  if (loop.ndim() > kDims) return false;

  VulkanBackend& backend = vulkan_backend(device.index);
  ElementwiseArguments arguments = {};
  arguments.target = backend.device_address(loop.data(0));
  arguments.a = backend.device_address(loop.data(1));
  arguments.b = count > 2 ? backend.device_address(loop.data(2)) : arguments.a;
  arguments.count = static_cast<std::uint32_t>(loop.numel());
  arguments.first = static_cast<float>(first);
  arguments.second = numbers == nullptr ? 0 : static_cast<float>(numbers[1]);
  bool is_dense = loop.ndim() <= 1;
  for (std::size_t d = 0; d < loop.ndim(); ++d) {
    arguments.sizes[d] = static_cast<std::uint32_t>(loop.size_at(d));
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t stride = loop.stride_at(d, i) / 4;
      if (!is_small(stride) || !is_small(stride * loop.size_at(d))) return false;
      arguments.strides[i][d] = static_cast<std::int32_t>(stride);
      is_dense = is_dense && stride == 1;
    }
  }
  const VulkanKernel kernel = {
      kElementwiseCode,
      {static_cast<std::uint32_t>(function),
       is_dense ? 0 : static_cast<std::uint32_t>(loop.ndim()), number_at}};
  const std::uint32_t groups = (arguments.count + kInvocations - 1) / kInvocations;
  backend.launch(kernel, bytes_of(arguments), {std::min(groups, kMostGroups), 1, 1},
                 current_stream(device));
  return true;
}

bool matmul(const Tensor& target, std::int64_t m, std::int64_t n, std::int64_t k, const Tensor& a,
            const MatrixStrides& a_strides, const Tensor& b, const MatrixStrides& b_strides,
            float beta) {
  const Device device = target.device();
  if (target.dtype() != DType::kF32 || a.device() != device || b.device() != device) return false;
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
  VulkanBackend& backend = vulkan_backend(device.index);
  MatmulArguments arguments = {};
  arguments.target = backend.device_address(address_to_write(target));
  arguments.a = backend.device_address(address_to_read(a));
  arguments.b = backend.device_address(address_to_read(b));
  arguments.m = word(m);
  arguments.n = word(n);
  arguments.k = word(k);
  arguments.a_row = word(a_strides.row);
  arguments.a_column = word(a_strides.column);
  arguments.b_row = word(b_strides.row);
  arguments.b_column = word(b_strides.column);
  arguments.a_batch = word(a_strides.batch);
  arguments.b_batch = word(b_strides.batch);
  arguments.beta = beta;
  backend.launch({kMatmulCode, {}}, bytes_of(arguments), {groups(n), groups(m), word(batch)},
                 current_stream(device));
  return true;
}

}  // namespace tenon::ops::vulkan
