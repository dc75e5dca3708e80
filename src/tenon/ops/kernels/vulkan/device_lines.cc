// Reductions, lines and indices.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <span>

#include "tenon/ops/kernels/vulkan/device_kernels.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/kernels/vulkan/complaints.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::vulkan {
namespace {

using Code = std::span<const std::uint32_t>;

constexpr std::uint32_t kReduceF32[] =
#include "reduce_f32.spv.inc"
    ;
constexpr std::uint32_t kReducePlainF32[] =
#include "reduce_f32_plain.spv.inc"
    ;
constexpr std::uint32_t kReduceF64[] =
#include "reduce_f64.spv.inc"
    ;
constexpr std::uint32_t kReduceI64[] =
#include "reduce_i64.spv.inc"
    ;
constexpr std::uint32_t kReduceI32[] =
#include "reduce_i32.spv.inc"
    ;
constexpr std::uint32_t kRowsF32[] =
#include "rows_f32_plain.spv.inc"
    ;
constexpr std::uint32_t kRowsF64[] =
#include "rows_f64.spv.inc"
    ;
constexpr std::uint32_t kRowsI64[] =
#include "rows_i64.spv.inc"
    ;
constexpr std::uint32_t kSortF32[] =
#include "sort_f32.spv.inc"
    ;
constexpr std::uint32_t kSortPlainF32[] =
#include "sort_f32_plain.spv.inc"
    ;
constexpr std::uint32_t kSortF64[] =
#include "sort_f64.spv.inc"
    ;
constexpr std::uint32_t kSortI64[] =
#include "sort_i64.spv.inc"
    ;
constexpr std::uint32_t kIndexF32[] =
#include "index_f32_plain.spv.inc"
    ;
constexpr std::uint32_t kIndexF64[] =
#include "index_f64.spv.inc"
    ;
constexpr std::uint32_t kIndexI64[] =
#include "index_i64.spv.inc"
    ;

constexpr std::uint32_t kInvocations = 64;  // of a group
constexpr std::uint32_t kMostGroups = 4096;
constexpr std::size_t kDims = 4;

bool is_small(std::int64_t number) {
  return number >= 0 && number <= std::numeric_limits<std::int32_t>::max();
}
std::uint32_t word(std::int64_t number) { return static_cast<std::uint32_t>(number); }

template <typename Arguments>
void run(VulkanBackend& backend, const VulkanKernel& kernel, const Arguments& arguments,
         std::int64_t invocations) {
  const std::int64_t groups = (invocations + kInvocations - 1) / kInvocations;
  launch(backend, kernel, arguments, {std::min(word(groups), kMostGroups), 1, 1});
}

// --- Reductions.

struct ReduceArguments {
  std::uint64_t target, source, shifts;
  std::uint32_t kept, reduced, piece, pieces;
  std::array<std::uint32_t, kDims> kept_sizes, reduced_sizes;
  std::array<std::int32_t, kDims> kept_strides, reduced_strides;
};

// Dimensions, innermost first; neighbours that are one in memory are joined.
struct Dims {
  std::array<std::uint32_t, kDims> sizes = {1, 1, 1, 1};
  std::array<std::int32_t, kDims> strides = {};
  std::size_t count = 0;
  std::int64_t numel = 1;

  bool add(std::int64_t size, std::int64_t stride) {
    numel *= size;
    if (size == 1) return true;
    if (count > 0 && stride == strides[count - 1] * std::int64_t{sizes[count - 1]}) {
      sizes[count - 1] *= word(size);
      return is_small(sizes[count - 1]);
    }
    if (count == kDims || !is_small(size * stride) || !is_small(size)) return false;
    sizes[count] = word(size);
    strides[count++] = static_cast<std::int32_t>(stride);
    return true;
  }
};

bool split_dims(const Tensor& a, std::uint64_t reduced, Dims& kept, Dims& gone) {
  for (std::size_t d = static_cast<std::size_t>(a.dim()); d-- > 0;)
    if (!((reduced >> d & 1) != 0 ? gone : kept).add(a.sizes()[d], a.strides()[d])) return false;
  return is_small(kept.numel) && is_small(gone.numel);
}

Code reduce_code(DType gathered, const VulkanAbilities& device) {
  switch (gathered) {
    case DType::kF64:
      return kReduceF64;
    case DType::kI64:
      return kReduceI64;
    case DType::kI32:
      return kReduceI32;
    default:
      if (device.integers) return kReduceF32;
      return kReducePlainF32;
  }
}

// Of how many pieces what one kept element reduces is: by sizes alone.
std::int64_t piece_length(std::int64_t kept, std::int64_t reduced) {
  constexpr std::int64_t kAtOnce = 2048;  // invocations that keep a device busy
  constexpr std::int64_t kLeast = 256;
  if (reduced <= 2 * kLeast || kept >= kAtOnce) return std::max<std::int64_t>(1, reduced);
  const std::int64_t pieces = std::min(kAtOnce / kept, reduced / kLeast);
  return (reduced + pieces - 1) / pieces;
}

void launch_reduce(VulkanBackend& backend, std::uint32_t kind, DType gathered, DType dtype,
                   const Dims& kept, const Dims& gone, std::int64_t piece,
                   std::uint64_t target, std::uint64_t source, std::uint64_t shifts) {
  ReduceArguments arguments = {};
  arguments.target = target;
  arguments.source = source;
  arguments.shifts = shifts;
  arguments.kept = word(kept.numel);
  arguments.reduced = word(gone.numel);
  arguments.piece = word(piece);
  arguments.pieces = std::max(1u, word((gone.numel + piece - 1) / piece));
  arguments.kept_sizes = kept.sizes;
  arguments.kept_strides = kept.strides;
  arguments.reduced_sizes = gone.sizes;
  arguments.reduced_strides = gone.strides;
  run(backend,
      {reduce_code(gathered, backend.abilities()),
       {kind, static_cast<std::uint32_t>(dtype), shifts == 0 ? 0u : 1u}},
      arguments, kept.numel * std::int64_t{arguments.pieces});
}

bool can_load(DType dtype, DType gathered, const VulkanAbilities& device) {
  if (dtype > DType::kF64) return false;
  if (dtype == DType::kF64) return gathered == DType::kF64;
  return device.integers || dtype == DType::kF32 || dtype == DType::kI32 || dtype <= DType::kI8;
}

}  // namespace

std::optional<DType> gather_dtype(DType dtype, Device device) {
  const VulkanAbilities& has = vulkan_backend(device.index).abilities();
  DType gathered = DType::kF32;
  if (is_floating(dtype)) {
    if (has.integers && has.f64) gathered = DType::kF64;
  } else {
    gathered = has.integers ? DType::kI64 : DType::kI32;
    if (!has.integers && dtype != DType::kBool) return std::nullopt;  // sums need more
  }
  return can_load(dtype, gathered, has) ? std::optional(gathered) : std::nullopt;
}

bool gather(ops::Gather kind, const Tensor& result, const Tensor& a, std::uint64_t reduced,
            const Tensor& shifts) {
  Dims kept, gone;
  if (!split_dims(a, reduced, kept, gone)) return false;
  VulkanBackend& backend = vulkan_backend(a.device().index);
  const DType gathered = result.dtype();
  const std::int64_t piece = piece_length(kept.numel, gone.numel);
  if (!may_loop(backend, piece)) return false;
  const std::int64_t pieces = gone.numel == 0 ? 1 : (gone.numel + piece - 1) / piece;
  const Tensor partial =
      pieces > 1 ? empty({pieces, kept.numel}, gathered, a.device()) : result;
  launch_reduce(backend, static_cast<std::uint32_t>(kind), gathered, a.dtype(), kept, gone, piece,
                address_to_write(backend, partial), address_to_read(backend, a),
                shifts.defined() ? address_to_read(backend, shifts) : 0);
  if (pieces == 1) return true;
  const ops::Gather combine = kind >= ops::Gather::kSumOfSquares ? ops::Gather::kSum : kind;
  Dims across, down;
  across.add(kept.numel, 1);
  down.add(pieces, kept.numel);
  launch_reduce(backend, static_cast<std::uint32_t>(combine), gathered, gathered, across, down,
                pieces, address_to_write(backend, result), address_to_read(backend, partial), 0);
  return true;
}

bool arg_extreme(bool largest, const Tensor& result, const Tensor& a, std::uint64_t reduced) {
  constexpr std::uint32_t kLargest = 10, kSmallest = 11;
  VulkanBackend& backend = vulkan_backend(a.device().index);
  const auto gathered = gather_dtype(a.dtype(), a.device());
  Dims kept, gone;
  if (!gathered || !split_dims(a, reduced, kept, gone) || !may_loop(backend, gone.numel))
    return false;
  launch_reduce(backend, largest ? kLargest : kSmallest, *gathered, a.dtype(), kept, gone,
                gone.numel, address_to_write(backend, result), address_to_read(backend, a), 0);
  return true;
}

// --- Lines.

namespace {

struct RowsArguments {
  std::uint64_t target, a, b, c, eps, products, of_weight, of_bias, mean, variance;
  std::uint32_t lines, length, inner, channels;
};

Code rows_code(DType dtype, const VulkanAbilities& has, bool is_scan) {
  if (dtype == DType::kF32) return kRowsF32;
  if (dtype == DType::kF64 && has.integers && has.f64) return kRowsF64;
  if (dtype == DType::kI64 && has.integers && is_scan) return kRowsI64;
  return {};
}

std::uint64_t address_if(VulkanBackend& backend, const Tensor& t) {
  return t.defined() ? address_to_read(backend, t) : 0;
}

RowsArguments rows_arguments(VulkanBackend& backend, const Tensor& target, std::int64_t length,
                             std::int64_t inner, const Tensor& a, const Tensor& b, const Tensor& c,
                             double eps, const Tensor& products) {
  RowsArguments arguments = {};
  arguments.target = address_to_write(backend, target);
  arguments.a = address_to_read(backend, a);
  arguments.b = address_if(backend, b);
  arguments.c = address_if(backend, c);
  if (products.defined()) arguments.products = address_to_write(backend, products);
  arguments.eps = a.dtype() == DType::kF64 ? std::bit_cast<std::uint64_t>(eps)
                                           : std::bit_cast<std::uint32_t>(static_cast<float>(eps));
  arguments.lines = word(a.numel() / length);
  arguments.length = word(length);
  arguments.inner = word(inner);
  return arguments;
}

VulkanKernel rows_kernel(Code code, Rows kind, const RowsArguments& arguments) {
  return {code,
          {static_cast<std::uint32_t>(kind), (arguments.b != 0 ? 1u : 0u) |
                                                 (arguments.c != 0 ? 2u : 0u) |
                                                 (arguments.mean != 0 ? 4u : 0u)}};
}

}  // namespace

bool rows(Rows kind, const Tensor& target, std::int64_t length, std::int64_t inner,
          const Tensor& a, const Tensor& b, const Tensor& c, double eps, const Tensor& products) {
  VulkanBackend& backend = vulkan_backend(a.device().index);
  const bool is_scan = kind == Rows::kCumsum || kind == Rows::kCumprod;
  const Code code = rows_code(a.dtype(), backend.abilities(), is_scan);
  if (code.empty() || !is_small(a.numel()) || target.numel() == 0 || !may_loop(backend, length))
    return false;
  const RowsArguments arguments =
      rows_arguments(backend, target, length, inner, a, b, c, eps, products);
  run(backend, rows_kernel(code, kind, arguments), arguments, arguments.lines);
  return true;
}

bool groups_backward(const Tensor& target, const Tensor& products, const Tensor& input,
                     const Tensor& gradient, const Tensor& weight, std::int64_t groups,
                     double eps) {
  VulkanBackend& backend = vulkan_backend(input.device().index);
  const Code code = rows_code(input.dtype(), backend.abilities(), false);
  if (code.empty() || !is_small(input.numel()) || target.numel() == 0) return false;
  const std::int64_t images = input.size(0), channels = input.size(1);
  RowsArguments arguments = rows_arguments(backend, target, input.numel() / (images * groups),
                                           input.numel() / (images * channels), input, gradient,
                                           weight, eps, products);
  arguments.channels = word(channels);
  run(backend, rows_kernel(code, Rows::kGroupNormBackward, arguments), arguments,
      arguments.lines * std::int64_t{kInvocations});
  return true;
}

bool channels_backward(const Tensor& target, const Tensor& of_weight, const Tensor& of_bias,
                       const Tensor& input, const Tensor& gradient, const Tensor& weight,
                       const Tensor& mean, const Tensor& variance, double eps) {
  VulkanBackend& backend = vulkan_backend(input.device().index);
  const Code code = rows_code(input.dtype(), backend.abilities(), false);
  if (code.empty() || !is_small(input.numel()) || target.numel() == 0) return false;
  const std::int64_t images = input.size(0), channels = input.size(1);
  RowsArguments arguments =
      rows_arguments(backend, target, input.numel() / channels,
                     input.numel() / (images * channels), input, gradient, weight, eps, {});
  arguments.of_weight = address_to_write(backend, of_weight);
  arguments.of_bias = address_to_write(backend, of_bias);
  arguments.mean = address_if(backend, mean);
  arguments.variance = address_if(backend, variance);
  arguments.channels = word(channels);
  run(backend, rows_kernel(code, Rows::kBatchNormBackward, arguments), arguments,
      channels * std::int64_t{kInvocations});
  return true;
}

namespace {

struct SortArguments {
  std::uint64_t values, indices, source;
  std::uint32_t rows, length, wanted, padding;
};

}  // namespace

bool sort(const Tensor& values, const Tensor& indices, const Tensor& rows, std::int64_t wanted,
          bool descending) {
  constexpr std::int64_t kLongest = 4096;
  VulkanBackend& backend = vulkan_backend(rows.device().index);
  const VulkanAbilities& has = backend.abilities();
  const auto gathered = gather_dtype(rows.dtype(), rows.device());
  const std::int64_t length = rows.size(-1);
  if (!gathered || gathered == DType::kI32 || length > kLongest || !is_small(rows.numel()))
    return false;
  // As they are, where they need not be gathered.
  Code code = kSortI64;
  if (rows.dtype() == DType::kF64)
    code = kSortF64;
  else if (is_floating(rows.dtype()))
    code = has.integers ? Code(kSortF32) : Code(kSortPlainF32);
  SortArguments arguments = {};
  arguments.values = address_to_write(backend, values);
  arguments.indices = address_to_write(backend, indices);
  arguments.source = address_to_read(backend, rows);
  arguments.rows = word(rows.numel() / length);
  arguments.length = word(length);
  arguments.wanted = word(wanted);
  run(backend, {code, {static_cast<std::uint32_t>(rows.dtype()), descending ? 1u : 0u}},
      arguments, rows.numel());
  return true;
}

// --- Indices.

namespace {

struct IndexArguments {
  std::uint64_t target, source, index, complaint;
  std::uint32_t count, length, size, what;
  std::array<std::uint32_t, kDims> sizes;
  std::array<std::int32_t, kDims> target_strides, source_strides, index_strides;
  std::int32_t target_step, source_step, index_step;
  std::uint32_t padding;
};

// All operands have as many dimensions as `walked`; that of the index may be left out.
bool fill_walk(IndexArguments& to, const Tensor& walked, std::optional<std::int64_t> left_out,
               const Tensor& target, const Tensor& source, const Tensor& index) {
  to.sizes.fill(1);
  std::size_t at = 0;
  for (std::int64_t d = walked.dim() - 1; d >= 0; --d) {
    for (const Tensor* t : {&target, &source, &index})
      if (!is_small(t->size(d) * t->stride(d))) return false;
    if (d == left_out || walked.size(d) == 1) continue;
    if (at == kDims) return false;
    to.sizes[at] = word(walked.size(d));
    to.target_strides[at] = static_cast<std::int32_t>(target.stride(d));
    to.source_strides[at] = static_cast<std::int32_t>(source.stride(d));
    to.index_strides[at++] = static_cast<std::int32_t>(index.stride(d));
  }
  return true;
}

void fill_addresses(IndexArguments& to, VulkanBackend& backend, const char* what,
                    const Tensor& target, const Tensor& source, const Tensor& index) {
  to.target = address_to_write(backend, target);
  to.source = address_to_read(backend, source);
  to.index = address_to_read(backend, index);
  to.complaint = complaint_address(backend);
  to.what = complaint_number(what);
}

}  // namespace

bool take(const char* what, const Tensor& target, const Tensor& source, std::int64_t dim,
          const Tensor& index) {
  VulkanBackend& backend = vulkan_backend(target.device().index);
  const bool has_integers = backend.abilities().integers;
  const auto bytes = word(static_cast<std::int64_t>(target.item_size()));
  if (!is_small(target.numel()) || !is_small(source.numel()) || (bytes == 2 && !has_integers))
    return false;
  DimVector steps = source.strides().to_vector();
  steps[static_cast<std::size_t>(dim)] = 0;  // the index steps there
  IndexArguments arguments = {};
  if (!fill_walk(arguments, target, std::nullopt, target, source.as_strided(target.sizes(), steps),
                 index))
    return false;
  fill_addresses(arguments, backend, what, target, source, index);
  arguments.count = word(target.numel());
  arguments.size = word(source.size(dim));
  arguments.source_step = static_cast<std::int32_t>(source.stride(dim));
  run(backend, {has_integers ? Code(kIndexI64) : Code(kIndexF32), {0, bytes}}, arguments,
      target.numel());
  return true;
}

bool add_at(const char* what, const Tensor& target, std::int64_t dim, const Tensor& index,
            const Tensor& source) {
  VulkanBackend& backend = vulkan_backend(target.device().index);
  const VulkanAbilities& has = backend.abilities();
  Code code;
  if (target.dtype() == DType::kF32)
    code = kIndexF32;
  else if (target.dtype() == DType::kF64 && has.integers && has.f64)
    code = kIndexF64;
  else if (target.dtype() == DType::kI64 && has.integers)
    code = kIndexI64;
  else
    return false;
  IndexArguments arguments = {};
  if (!is_small(source.numel()) || !is_small(target.numel()) ||
      !may_loop(backend, source.size(dim)) ||
      !fill_walk(arguments, source, dim, target, source, index))
    return false;
  fill_addresses(arguments, backend, what, target, source, index);
  arguments.length = word(source.size(dim));
  arguments.count = word(source.numel() / source.size(dim));
  arguments.size = word(target.size(dim));
  arguments.target_step = static_cast<std::int32_t>(target.stride(dim));
  arguments.source_step = static_cast<std::int32_t>(source.stride(dim));
  arguments.index_step = static_cast<std::int32_t>(index.stride(dim));
  run(backend, {code, {1, 4}}, arguments, arguments.count);
  return true;
}

}  // namespace tenon::vulkan
