#include "tenon/tensor/kernels/vulkan/elements.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "tenon/tensor/copy.h"
#include "tenon/tensor/kernels/vulkan/capturing.h"
#include "tenon/tensor/strided_loop.h"

namespace tenon::vulkan {
namespace {

// elements.comp as compiled for each way to compute and each group of functions; in f32 with and
// without narrow and wide integers.
constexpr std::uint32_t kF32Arithmetic[] =
#include "elements_f32_arithmetic.spv.inc"
    ;
constexpr std::uint32_t kF32Exponentials[] =
#include "elements_f32_exponentials.spv.inc"
    ;
constexpr std::uint32_t kF32Circles[] =
#include "elements_f32_circles.spv.inc"
    ;
constexpr std::uint32_t kPlainF32Arithmetic[] =
#include "elements_f32_plain_arithmetic.spv.inc"
    ;
constexpr std::uint32_t kPlainF32Exponentials[] =
#include "elements_f32_plain_exponentials.spv.inc"
    ;
constexpr std::uint32_t kPlainF32Circles[] =
#include "elements_f32_plain_circles.spv.inc"
    ;
constexpr std::uint32_t kF64Arithmetic[] =
#include "elements_f64_arithmetic.spv.inc"
    ;
constexpr std::uint32_t kF64Exponentials[] =
#include "elements_f64_exponentials.spv.inc"
    ;
constexpr std::uint32_t kF64Circles[] =
#include "elements_f64_circles.spv.inc"
    ;
constexpr std::uint32_t kI64Arithmetic[] =
#include "elements_i64_arithmetic.spv.inc"
    ;
constexpr std::uint32_t kI32Arithmetic[] =
#include "elements_i32_arithmetic.spv.inc"
    ;
constexpr std::uint32_t kMoves[] =
#include "elements_i64_moves.spv.inc"
    ;
constexpr std::uint32_t kPlainMoves[] =
#include "elements_i32_moves.spv.inc"
    ;

enum class Way : std::uint8_t { kF32, kF64, kI64, kI32 };
enum class Group : std::uint8_t { kArithmetic, kExponentials, kCircles };

// As elements.comp has them.
Group group_of(DeviceFunction function) {
  constexpr std::uint8_t kExponentials[] = {44, 46, 47, 48, 49, 50, 60, 61,  62,
                                            65, 66, 67, 68, 70, 72, 73, 103, 105};
  constexpr std::uint8_t kCircles[] = {6, 7, 45, 54, 55, 56, 57, 58, 59, 63, 64, 69, 104};
  const auto has = [&](std::span<const std::uint8_t> numbers) {
    return std::find(numbers.begin(), numbers.end(), static_cast<std::uint8_t>(function)) !=
           numbers.end();
  };
  return has(kExponentials) ? Group::kExponentials : has(kCircles) ? Group::kCircles
                                                                   : Group::kArithmetic;
}

using Code = std::span<const std::uint32_t>;
Code code_of(Way way, Group group, bool has_integers) {
  if (way == Way::kI64) return kI64Arithmetic;
  if (way == Way::kI32) return kI32Arithmetic;
  const auto choose = [&](Code arithmetic, Code exponentials, Code circles) {
    return group == Group::kArithmetic ? arithmetic
           : group == Group::kExponentials ? exponentials
                                           : circles;
  };
  if (way == Way::kF64) return choose(kF64Arithmetic, kF64Exponentials, kF64Circles);
  return has_integers ? choose(kF32Arithmetic, kF32Exponentials, kF32Circles)
                      : choose(kPlainF32Arithmetic, kPlainF32Exponentials, kPlainF32Circles);
}

constexpr std::uint32_t kInvocations = 128;  // of a group
constexpr std::uint32_t kMostGroups = 4096;  // each then does several elements
constexpr std::size_t kDims = 4;
constexpr std::int64_t kMostLaunches = 256;
constexpr std::size_t kOperands = 4;

struct Arguments {
  std::uint64_t bases[kOperands];
  std::uint64_t first, second;
  std::uint32_t count;
  std::uint32_t sizes[kDims - 1];
  std::int32_t strides[kOperands][kDims];
};
static_assert(sizeof(Arguments) == 128);

bool is_small(std::int64_t number) {
  return number >= 0 && number <= std::numeric_limits<std::int32_t>::max();
}

// How to compute, or nothing where the device cannot read or write one of the dtypes so.
std::optional<Way> way_for(DType compute, std::span<const DType> dtypes,
                           const VulkanAbilities& device) {
  const auto any = [&](auto&& is) { return std::any_of(dtypes.begin(), dtypes.end(), is); };
  if (is_complex(compute) || any([](DType d) { return d > DType::kF64; })) return std::nullopt;
  const auto is_f64 = [](DType d) { return d == DType::kF64; };
  const bool in_floats = is_floating(compute) || (compute == DType::kBool && any([](DType d) {
                                                    return is_floating(d);
                                                  }));
  if (is_f64(compute) || any(is_f64))
    return device.integers && device.f64 ? std::optional(Way::kF64) : std::nullopt;
  if (device.integers) return in_floats ? Way::kF32 : Way::kI64;
  const auto needs_integers = [](DType d) {
    return d == DType::kI16 || d == DType::kI64 || d == DType::kF16 || d == DType::kBF16;
  };
  if (any(needs_integers) || needs_integers(compute)) return std::nullopt;
  return in_floats ? Way::kF32 : Way::kI32;
}

// Whether every integer of the one dtype is one of the other, or it is only asked for its truth.
bool holds_all_of(DType compute, DType input) {
  if (compute == DType::kBool || !is_integral(compute) || !is_integral(input)) return true;
  return compute >= input && !(compute == DType::kI8 && input == DType::kU8);
}

// A number as the kernel takes it; to integers towards zero.
std::uint64_t bits_of(double number, Way way) {
  if (way == Way::kF32) return std::bit_cast<std::uint32_t>(static_cast<float>(number));
  if (way == Way::kF64) return std::bit_cast<std::uint64_t>(number);
  constexpr double kMost = 9223372036854774784.0;
  const auto whole = static_cast<std::int64_t>(std::clamp(number, -kMost, kMost));
  if (way == Way::kI64) return static_cast<std::uint64_t>(whole);
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(whole, INT32_MIN, INT32_MAX));
}
std::uint64_t bits_of(const Tensor& number, DType compute, Way way) {
  if (!holds_all_of(compute, number.dtype())) return bits_of(to(number, compute), compute, way);
  if (compute == DType::kBool) return bits_of(number.item<bool>() ? 1.0 : 0.0, way);
  if (way == Way::kI64) return static_cast<std::uint64_t>(number.item<std::int64_t>());
  if (way == Way::kI32) return static_cast<std::uint32_t>(number.item<std::int64_t>());
  return bits_of(number.item<double>(), way);
}

// Where its storage begins, in stream order.
void* base_of(const Tensor& t, bool writes) {
  StorageImpl& storage = *t.storage().impl();
  void* base = writes ? storage.mutable_data_in_stream()
                      : const_cast<void*>(storage.data_in_stream());
  note_use(storage, base, writes);
  return base;
}

// Walks operands together; the first is written. False for what the kernel has no room for. The
// second one's dimensions whose bits are set in `flipped` run backwards.
class Walk {
 public:
  Walk(VulkanBackend& backend, std::span<const Tensor* const> tensors, std::uint64_t flipped = 0)
      : backend_(backend) {
    std::array<StridedLoop::Operand, kOperands> operands;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Tensor& t = *tensors[i];
      const auto item = static_cast<std::int64_t>(t.item_size());
      items_[i] = item;
      operands[i] = {static_cast<char*>(base_of(t, i == 0)) + t.storage_offset() * item,
                     t.sizes(), t.strides(), item};
    }
    DimVector backwards;
    if (flipped != 0) {
      StridedLoop::Operand& source = operands[1];
      backwards = tensors[1]->strides().to_vector();
      for (std::size_t d = 0; d < backwards.size(); ++d) {
        if ((flipped >> d & 1) == 0) continue;
        back_ += (source.sizes[d] - 1) * backwards[d];
        backwards[d] = -backwards[d];
      }
      source.data = static_cast<char*>(source.data) + back_ * source.item_bytes;
      source.strides = backwards;
    }
    loop_.emplace(tensors[0]->sizes(), operands.data(), tensors.size());
    count_ = tensors.size();
  }

  // Takes neighbours of every operand together, where they lie so: the bytes of an element then.
  // Requires: elements of one size, and no others after this.
  std::size_t join_neighbours() {
    const auto item = static_cast<std::uint64_t>(items_[0]);
    std::uint64_t all = back_ == 0 && loop_->numel() > 0 ? 0 : item;  // all that must be multiples
    for (std::size_t i = 0; i < count_; ++i) {
      all |= backend_.device_address(loop_->data(i));
      if (loop_->stride_at(0, i) != items_[i]) all |= item;
      for (std::size_t d = 1; d < loop_->ndim(); ++d)
        all |= static_cast<std::uint64_t>(loop_->stride_at(d, i));
    }
    all |= static_cast<std::uint64_t>(loop_->size_at(0)) * item;
    constexpr std::int64_t kMostBytes = 16;
    const std::int64_t bytes = std::min(kMostBytes, std::int64_t{1} << std::countr_zero(all));
    joined_ = std::max<std::int64_t>(1, bytes / items_[0]);
    for (std::size_t i = 0; i < count_; ++i) items_[i] *= joined_;
    return static_cast<std::size_t>(items_[0]);
  }

  // at[i]: the operand of the kernel that tensor i is.
  bool fill_in(Arguments& to, const std::array<std::size_t, kOperands>& at) const {
    const StridedLoop& loop = *loop_;
    if (launches() > kMostLaunches || !is_small(loop.numel()) || !is_small(back_)) return false;
    to.count = static_cast<std::uint32_t>(loop.numel() / joined_ / launches());
    for (std::size_t i = 0; i < count_; ++i)
      to.bases[at[i]] = backend_.device_address(loop.data(i));
    for (std::size_t d = 0; d < std::min(loop.ndim(), kDims); ++d) {
      if (d < kDims - 1)
        to.sizes[d] = static_cast<std::uint32_t>(loop.size_at(d) / (d == 0 ? joined_ : 1));
      for (std::size_t i = 0; i < count_; ++i) {
        const std::int64_t stride = loop.stride_at(d, i) * (d == 0 ? joined_ : 1) / items_[i];
        if (!is_small(std::abs(stride)) || !is_small(std::abs(stride) * loop.size_at(d)))
          return false;
        to.strides[at[i]][d] = static_cast<std::int32_t>(stride);
      }
    }
    return true;
  }
  // The elements before the second operand's first one.
  std::int64_t back() const { return back_; }
  // 0 where all are dense and of one shape.
  std::uint32_t dims() const {
    bool is_dense = loop_->ndim() <= 1;
    for (std::size_t i = 0; i < count_; ++i)
      is_dense = is_dense && loop_->stride_at(0, i) * joined_ == items_[i];
    return is_dense ? 0 : static_cast<std::uint32_t>(std::min(loop_->ndim(), kDims));
  }
  // Dimensions that a kernel has no room for are walked here, by a launch for each place in them.
  std::int64_t launches() const {
    std::int64_t count = 1;
    for (std::size_t d = kDims; d < loop_->ndim(); ++d) count *= loop_->size_at(d);
    return count;
  }
  void run(const VulkanKernel& kernel, Arguments arguments,
           const std::array<std::size_t, kOperands>& at) const {
    const std::uint32_t groups = (arguments.count + kInvocations - 1) / kInvocations;
    const Arguments first = arguments;
    for (std::int64_t n = 0; n < launches(); ++n) {
      std::int64_t rest = n;
      for (std::size_t i = 0; i < count_; ++i) arguments.bases[at[i]] = first.bases[at[i]];
      for (std::size_t d = kDims; d < loop_->ndim(); rest /= loop_->size_at(d++))
        for (std::size_t i = 0; i < count_; ++i)
          arguments.bases[at[i]] +=
              static_cast<std::uint64_t>(rest % loop_->size_at(d) * loop_->stride_at(d, i));
      launch(backend_, kernel, arguments, {std::min(groups, kMostGroups), 1, 1});
    }
  }

 private:
  VulkanBackend& backend_;
  std::optional<StridedLoop> loop_;
  std::array<std::int64_t, kOperands> items_{};
  std::int64_t back_ = 0;
  std::int64_t joined_ = 1;  // neighbours that are one element of the kernel's
  std::size_t count_ = 0;
};

// What needs no arithmetic: how, and two numbers for it.
enum class Move : std::uint32_t { kCopy = 0, kFill = 1, kLower = 2, kUpper = 4 };
bool move(const Tensor& target, const Tensor* source, Move how, std::uint64_t first,
          std::uint64_t second, std::uint64_t flipped = 0) {
  VulkanBackend& backend = vulkan_backend(target.device().index);
  const bool has_integers = backend.abilities().integers;
  Arguments arguments = {};
  const Tensor* both[] = {&target, source};
  Walk walk(backend, std::span(both, source == nullptr ? 1 : 2), flipped);
  const bool counts_places = how == Move::kLower || how == Move::kUpper;
  const std::size_t item = counts_places ? target.item_size() : walk.join_neighbours();
  if ((item == 2 && !has_integers) || !walk.fill_in(arguments, {0, 1})) return false;
  if (counts_places && walk.launches() > 1) return false;
  arguments.first = how == Move::kCopy ? static_cast<std::uint64_t>(walk.back()) : first;
  arguments.second = second;
  arguments.bases[1] -= static_cast<std::uint64_t>(walk.back()) * item;  // so no index is negative
  walk.run({has_integers ? Code(kMoves) : Code(kPlainMoves),
            {static_cast<std::uint32_t>(DeviceFunction::kMove), walk.dims(),
             static_cast<std::uint32_t>(item), static_cast<std::uint32_t>(how)}},
           arguments, {0, 1});
  return true;
}

const void* place(const Tensor& t, const void* base) {
  return static_cast<const char*>(base) +
         t.storage_offset() * static_cast<std::int64_t>(t.item_size());
}

}  // namespace

bool elements(DeviceFunction function, DType compute, const double* numbers, const Tensor& target,
              std::span<const Tensor* const> inputs) {
  const Device device = target.device();
  if (function == DeviceFunction::kNone || inputs.size() >= kOperands) return false;
  std::array<const Tensor*, kOperands> tensors = {&target};
  std::array<std::size_t, kOperands> at = {0};
  std::array<DType, kOperands> dtypes = {target.dtype()};
  std::array<const Tensor*, 2> given{};
  std::size_t count = 1, given_count = 0;
  std::uint32_t are_numbers = 0;
  std::uint32_t packed = static_cast<std::uint32_t>(target.dtype());
  std::array<Tensor, kOperands> narrowed;  // of 0-d ones, which do not widen the others
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool narrows = function != DeviceFunction::kConvert && inputs[i]->device() == device &&
                         !holds_all_of(compute, inputs[i]->dtype());
    if (narrows) narrowed[i] = to(inputs[i]->detach(), compute);
    const Tensor& input = narrows ? narrowed[i] : *inputs[i];
    if (input.device() == device) {
      tensors[count] = &input;
      dtypes[count] = input.dtype();
      at[count++] = i + 1;
      packed |= static_cast<std::uint32_t>(input.dtype()) << (8 * (i + 1));
    } else if (inputs.size() > 1 && given_count < 2 && numbers == nullptr && input.dim() == 0 &&
               input.device() == Device{} && !is_complex(input.dtype())) {
      given[given_count++] = &input;
      are_numbers |= 1u << i;
    } else {
      return false;
    }
  }
  if (count == 1) return false;
  VulkanBackend& backend = vulkan_backend(device.index);
  const auto way = way_for(compute, std::span(dtypes.data(), count), backend.abilities());
  if (!way) return false;
  const Walk walk(backend, std::span(tensors.data(), count));
  Arguments arguments = {};
  if (!walk.fill_in(arguments, at)) return false;
  if (numbers != nullptr) {
    arguments.first = bits_of(numbers[0], *way);
    arguments.second = bits_of(numbers[1], *way);
  } else {
    if (given_count > 0) arguments.first = bits_of(*given[0], compute, *way);
    if (given_count > 1) arguments.second = bits_of(*given[1], compute, *way);
  }
  walk.run({code_of(*way, group_of(function), backend.abilities().integers),
            {static_cast<std::uint32_t>(function), walk.dims(), packed, are_numbers}},
           arguments, at);
  return true;
}

bool copy(const Tensor& target, const Tensor& source) {
  if (target.dtype() == source.dtype()) return move(target, &source, Move::kCopy, 0, 0);
  const Tensor* const inputs[] = {&source};
  return elements(DeviceFunction::kConvert, source.dtype(), nullptr, target, inputs);
}

bool flip(const Tensor& target, const Tensor& source, std::uint64_t flipped) {
  return move(target, &source, Move::kCopy, 0, 0, flipped);
}

bool fill(const Tensor& target, const Scalar& value) {
  std::uint64_t bytes[2] = {};
  visit_any_dtype(target.dtype(), [&]<typename T>() {
    std::array<T, 16 / sizeof(T)> elements;
    elements.fill(value.to<T>());
    std::memcpy(bytes, elements.data(), sizeof elements);
  });
  return move(target, nullptr, Move::kFill, bytes[0], bytes[1]);
}

bool triangle(const Tensor& target, const Tensor& source, bool is_lower, std::int64_t diagonal) {
  const std::int64_t rows = source.size(-2), columns = source.size(-1);
  const std::int64_t at = std::clamp(diagonal, -rows, columns);
  return move(target, &source, is_lower ? Move::kLower : Move::kUpper,
              static_cast<std::uint64_t>(columns) | static_cast<std::uint64_t>(rows) << 32,
              static_cast<std::uint32_t>(at));
}

std::uint64_t address_to_write(VulkanBackend& backend, const Tensor& t) {
  return backend.device_address(place(t, base_of(t, true)));
}
std::uint64_t address_to_read(VulkanBackend& backend, const Tensor& t) {
  return backend.device_address(place_to_read(t));
}
const void* place_to_read(const Tensor& t) { return place(t, base_of(t, false)); }

}  // namespace tenon::vulkan
