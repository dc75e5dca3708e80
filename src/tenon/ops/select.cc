#include "tenon/ops/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "tenon/base/parallel.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/indices.h"
#include "tenon/ops/kernels/vulkan/device_kernels.h"
#include "tenon/ops/reduce.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/copy_bytes.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/kernels/vulkan/elements.h"
#include "tenon/tensor/promotion.h"
#include "tenon/tensor/strided_rows.h"

namespace tenon::ops {
namespace {

// Words of elements, chosen by their bits: a choice between two loads would be a branch, which is
// guessed wrong half the time.
template <typename Word, std::int64_t kWords = 1>
void choose_block(void* out, const void* const* in, std::int64_t count, const double*) {
  const auto* condition = static_cast<const std::uint8_t*>(in[0]);
  const auto* a = static_cast<const Word*>(in[1]);
  const auto* b = static_cast<const Word*>(in[2]);
  auto* result = static_cast<Word*>(out);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count * kWords; ++i) {
    const Word mask = static_cast<Word>(0 - static_cast<Word>(condition[i / kWords] != 0));
    result[i] = static_cast<Word>(b[i] ^ ((a[i] ^ b[i]) & mask));
  }
}
BlockFunction choose_block_of(std::size_t item_bytes) {
  switch (item_bytes) {
    case 1:
      return &choose_block<std::uint8_t>;
    case 2:
      return &choose_block<std::uint16_t>;
    case 4:
      return &choose_block<std::uint32_t>;
    case 8:
      return &choose_block<std::uint64_t>;
    default:
      return &choose_block<std::uint64_t, 2>;
  }
}

// Copies whole rows of the innermost dimensions.
void select_rows(const Tensor& out, const Tensor& a, const Tensor& index, const Split& split,
                 const SplitStrides& strides) {
  const std::int64_t chosen = index.numel(), item = static_cast<std::int64_t>(a.item_size());
  const std::int64_t bytes = split.inner * item, step = strides.inner * item;
  const auto* from = static_cast<const char*>(a.const_data_ptr());
  auto* target = static_cast<char*>(out.data_ptr());
  const std::int64_t* at = index.const_data_ptr<std::int64_t>();
  parallel_for(0, split.outer * chosen, std::max<std::int64_t>(1, 65536 / (bytes + 1)),
               [=](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end;) {
                   const std::int64_t outer = i / chosen;
                   const std::int64_t stop = std::min(end, (outer + 1) * chosen);
                   const char* const slice = from + outer * strides.outer * item;
                   const std::int64_t* places = at + (i - outer * chosen);
                   for (; i < stop; ++i) {
                     const char* const row = slice + *places++ * strides.size * item;
                     if (step == item)
                       tenon::detail::copy_bytes(target + i * bytes, row,
                                                 static_cast<std::size_t>(bytes));
                     else
                       tenon::detail::copy_rows(target + i * bytes, bytes, row, 0, item, step,
                                                split.inner, 1);
                   }
                 }
               });
}

// Single elements out of the last dimension, some rows at a time: an index is read once for them.
template <typename T>
void select_elements(const Tensor& out, const Tensor& a, const Tensor& index,
                     const SplitStrides& strides) {
  constexpr std::int64_t kRows = 4;
  const std::int64_t length = strides.outer, step = strides.size;
  const std::int64_t chosen = index.numel(), rows = out.numel() / chosen;
  const auto* from = static_cast<const T*>(a.const_data_ptr());
  auto* target = static_cast<T*>(out.data_ptr());
  const std::int64_t* at = index.const_data_ptr<std::int64_t>();
  parallel_for(0, (rows + kRows - 1) / kRows, std::max<std::int64_t>(1, 16384 / (kRows * chosen)),
               [&](std::int64_t begin, std::int64_t end) {
                 std::int64_t row = begin * kRows;
                 const std::int64_t last = std::min(rows, end * kRows);
                 for (; row + kRows <= last; row += kRows) {
                   const T* const x = from + row * length;
                   T* const y = target + row * chosen;
#pragma GCC ivdep
                   for (std::int64_t i = 0; i < chosen; ++i) {
                     const T* const element = x + at[i] * step;
                     y[i] = element[0];
                     y[i + chosen] = element[length];
                     y[i + 2 * chosen] = element[2 * length];
                     y[i + 3 * chosen] = element[3 * length];
                   }
                 }
                 for (; row < last; ++row)
                   for (std::int64_t i = 0; i < chosen; ++i)
                     target[row * chosen + i] = from[row * length + at[i] * step];
               });
}

// Where index_select reads a tensor: in place, or in a contiguous copy where its rows are spread
// over the memory and most of them are wanted.
Tensor to_select_from(const Tensor& a, const Split& split, std::int64_t chosen) {
  constexpr std::int64_t kNearBytes = 32;
  const std::optional<SplitStrides> strides = split_strides(a, split);
  if (!strides) return contiguous(a);
  const bool is_near = strides->inner * static_cast<std::int64_t>(a.item_size()) <= kNearBytes;
  return split.inner == 1 || is_near || chosen <= split.size / 4 ? a : contiguous(a);
}

}  // namespace

Tensor integer_indices(const char* what, const Tensor& index) {
  if (!is_integral(index.dtype()))
    throw InvalidArgument(
        fmt::format("{}: an index of {}; take integers", what, dtype_name(index.dtype())));
  return contiguous(to(index, DType::kI64));
}

Tensor checked_indices(const char* what, const Tensor& index, std::int64_t size) {
  const Tensor given = integer_indices(what, index);
  if (given.is_meta() || given.numel() == 0) return given;
  const Tensor dense = to_host(given);
  const std::int64_t* values = dense.const_data_ptr<std::int64_t>();
  std::atomic<bool> all_fit{true};
  parallel_for(0, dense.numel(), 65536, [&](std::int64_t begin, std::int64_t end) {
    if (!cpu::are_indices(values + begin, end - begin, size))
      all_fit.store(false, std::memory_order_relaxed);
  });
  if (all_fit) [[likely]]
    return dense;
  const std::int64_t* wrong = std::find_if(values, values + dense.numel(),
                                           [=](std::int64_t i) { return i < 0 || i >= size; });
  throw InvalidArgument(fmt::format("{}: index {} for a dimension of size {}", what, *wrong, size));
}

void check_index_1d(const char* what, const Tensor& index) {
  if (index.dim() > 1)
    throw InvalidArgument(fmt::format("{}: an index of shape {}; take one dimension", what,
                                      to_string(index.sizes())));
}

Tensor along_dim(const char* what, const Tensor& index, IntList sizes, std::int64_t dim) {
  DimVector shape(sizes.size(), 1);
  shape[static_cast<std::size_t>(dim)] = index.numel();
  return integer_indices(what, index).view(shape).expand(sizes);
}

Tensor detail::where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const Device device = device_to_offer("where", {&condition, &a, &b});
  if (condition.dtype() != DType::kBool)
    throw InvalidArgument(
        fmt::format("where: a condition of {}; compare first", dtype_name(condition.dtype())));
  const DType dtype = result_type(a, b);
  const DimVector sizes =
      broadcast_sizes(condition.sizes(), broadcast_sizes(a.sizes(), b.sizes(), "where"), "where");
  Tensor out = elementwise_result(sizes, dtype, device, {&condition, &a, &b});
  ElementwisePlan plan;
  plan.name = "where";
  plan.on_device = DeviceFunction::kWhere;
  plan.input_count = 3;
  plan.input_dtypes = {DType::kBool, dtype, dtype};
  plan.result_dtype = dtype;
  plan.function = choose_block_of(item_size(dtype));
  run_elementwise(plan, out, {&condition, &a, &b});
  return out;
}

Tensor detail::masked_fill(const Tensor& a, const Tensor& mask, const Scalar& value) {
  if (!can_cast(value.dtype(), a.dtype()) && !is_floating(a.dtype()))
    throw InvalidArgument(fmt::format("masked_fill: a {} cannot go into {}",
                                      dtype_name(value.dtype()), dtype_name(a.dtype())));
  return ops::where(mask, scalar_tensor(value, a.dtype()), a);
}

Tensor detail::index_select(const Tensor& a, std::int64_t dim, const Tensor& index) {
  const Device device = device_to_offer("index_select", {&a, &index});
  check_index_1d("index_select", index);
  const std::int64_t d = wrap_dim(dim, a.dim(), "index_select");
  if (a.dim() == 0 && index.numel() != 1)
    throw InvalidArgument(
        fmt::format("index_select: {} indices into a 0-d tensor; it takes one", index.numel()));
  DimVector sizes = a.sizes().to_vector();
  if (a.dim() > 0) sizes[static_cast<std::size_t>(d)] = index.numel();
  Tensor out = empty(sizes, a.dtype(), device);
  HostTurn host;
  if (vulkan::holds(a) && out.numel() > 0) {
    if (a.dim() > 0 && a.numel() > 0 && index.device() == device &&
        vulkan::take("index_select", out, a, d, along_dim("index_select", index, sizes, d)))
      return out;
    host.take("index_select", device);
  }
  if (a.dim() == 1 && !out.is_meta() && out.numel() > 0) {
    const Tensor indices = integer_indices("index_select", index);
    visit_bytes(a.item_size(), [&](auto item) {
      using T = decltype(item);
      choose_elements("index_select", static_cast<T*>(out.data_ptr()),
                      static_cast<const T*>(a.const_data_ptr()), indices, a.size(0), a.stride(0));
    });
    return out;
  }
  const Tensor indices = checked_indices("index_select", index, a.dim() == 0 ? 1 : a.size(d));
  if (out.is_meta() || out.numel() == 0) return out;
  const Split split(a.sizes(), d);
  const Tensor source = to_select_from(a, split, indices.numel());
  const SplitStrides strides = *split_strides(source, split);
  if (split.inner == 1)
    visit_bytes(a.item_size(),
                [&](auto item) { select_elements<decltype(item)>(out, source, indices, strides); });
  else
    select_rows(out, source, indices, split, strides);
  return out;
}

Tensor detail::embedding(const Tensor& index, const Tensor& weight) {
  if (weight.dim() != 2)
    throw InvalidArgument(fmt::format("embedding: a weight of shape {}; it must be [rows, width]",
                                      to_string(weight.sizes())));
  DimVector sizes = index.sizes().to_vector();
  sizes.push_back(weight.size(1));
  return ops::index_select(weight, 0, index.reshape({-1})).view(sizes);
}

Tensor detail::one_hot(const Tensor& index, std::int64_t classes) {
  const Device device = device_to_offer("one_hot", {&index});
  if (classes < 0) {
    if (index.is_meta() || index.numel() == 0)
      throw InvalidArgument("one_hot: the number of classes is needed where no index can be seen");
    classes = ops::amax(index).item<std::int64_t>() + 1;
  }
  DimVector sizes = index.sizes().to_vector();
  sizes.push_back(classes);
  Tensor out = zeros(sizes, DType::kI64, device);
  HostTurn host;
  if (vulkan::holds(index) && out.numel() > 0) {
    const Tensor one = ones({}, DType::kI64, device);
    if (vulkan::add_at("one_hot", out, -1, integer_indices("one_hot", index).unsqueeze(-1),
                       one.expand(index.unsqueeze(-1).sizes())))
      return out;
    host.take("one_hot", device);
  }
  const Tensor indices = checked_indices("one_hot", index, classes);
  if (out.is_meta() || out.numel() == 0) return out;
  std::int64_t* target = out.data_ptr<std::int64_t>();
  const std::int64_t* at = indices.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < indices.numel(); ++i) target[i * classes + at[i]] = 1;
  return out;
}

}  // namespace tenon::ops
