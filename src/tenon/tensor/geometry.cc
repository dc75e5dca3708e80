#include "tenon/tensor/geometry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "tenon/base/error.h"
#include "tenon/base/inline_vector.h"

namespace tenon {
namespace {

// Dimensions from the innermost outwards.
constexpr std::array<std::size_t, 4> kNhwc = {1, 3, 2, 0};
constexpr std::array<std::size_t, 5> kNdhwc = {1, 4, 3, 2, 0};

template <std::size_t N>
bool is_dense_in_order(IntList sizes, IntList strides, const std::array<std::size_t, N>& order) {
  if (sizes.size() != N) return false;
  std::int64_t expected = 1;
  for (const std::size_t d : order) {
    if (sizes[d] == 1) continue;
    if (strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

template <std::size_t N>
bool is_strided_in_order(IntList sizes, IntList strides, const std::array<std::size_t, N>& order) {
  if (sizes.size() != N || strides[1] == 0) return false;
  std::int64_t smallest = 0;
  for (const std::size_t d : order) {
    if (sizes[d] == 0 || strides[d] < smallest) return false;
    // N111 with equal strides, and C11 of a contiguous tensor, are no channels-last.
    if (d == 0 && smallest == strides[1]) return false;
    smallest = strides[d] * std::max<std::int64_t>(sizes[d], 1);
  }
  return true;
}

DimVector strides_in_order(IntList sizes, const std::size_t* order) {
  DimVector strides(sizes.size());
  std::int64_t step = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    strides[order[i]] = step;
    step *= std::max<std::int64_t>(sizes[order[i]], 1);
  }
  return strides;
}

// Dimensions of more than one element by increasing stride.
InlineVector<std::size_t, 6> by_stride(IntList sizes, IntList strides) {
  InlineVector<std::size_t, 6> order;
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] != 1) order.push_back(d);
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return strides[a] < strides[b]; });
  return order;
}

[[noreturn]] void refuse_size(IntList sizes) {
  if (sizes.size() > kMaxDims)
    throw InvalidArgument(
        fmt::format("{} dimensions: a tensor has at most {}", sizes.size(), kMaxDims));
  for (const std::int64_t size : sizes)
    if (size < 0)
      throw InvalidArgument(fmt::format("shape {}: {} is no size", to_string(sizes), size));
  throw InvalidArgument(fmt::format("shape {}: more than 2^63 - 1 elements", to_string(sizes)));
}

}  // namespace

std::string to_string(IntList list) {
  return fmt::format("[{}]", fmt::join(list.begin(), list.end(), ", "));
}

std::string_view layout_name(Layout layout) {
  constexpr std::string_view kNames[] = {"strided",    "sparse_coo", "sparse_csr",
                                         "sparse_csc", "sparse_bsr", "sparse_bsc"};
  return kNames[static_cast<std::size_t>(layout)];
}

std::int64_t checked_numel(IntList sizes) {
  if (sizes.size() > kMaxDims) [[unlikely]]
    refuse_size(sizes);
  // A size of 0 counts as 1 for the strides, so the others must not overflow beside it either.
  std::int64_t others = 1;
  bool overflow = false;
  bool empty = false;
  for (const std::int64_t size : sizes) {
    if (size < 0) [[unlikely]]
      refuse_size(sizes);
    empty |= size == 0;
    overflow |= __builtin_mul_overflow(others, size == 0 ? 1 : size, &others);
  }
  if (overflow) [[unlikely]]
    refuse_size(sizes);
  return empty ? 0 : others;
}

DimVector strides_for(IntList sizes, MemoryFormat format) {
  if (format == MemoryFormat::kChannelsLast || format == MemoryFormat::kChannelsLast3d) {
    const bool flat = format == MemoryFormat::kChannelsLast;
    if (sizes.size() != (flat ? 4u : 5u))
      throw InvalidArgument(fmt::format("channels_last{} needs {} dimensions, not shape {}",
                                        flat ? "" : "_3d", flat ? 4 : 5, to_string(sizes)));
    return strides_in_order(sizes, flat ? kNhwc.data() : kNdhwc.data());
  }
  DimVector strides(sizes.size());
  fill_contiguous_strides(sizes, strides.data());
  return strides;
}

bool is_contiguous(IntList sizes, IntList strides) {
  std::int64_t expected = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] == 1) continue;
    if (strides[d] != expected) return std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
    expected *= sizes[d];
  }
  return true;
}

bool is_channels_last_contiguous(IntList sizes, IntList strides) {
  return is_dense_in_order(sizes, strides, kNhwc);
}
bool is_channels_last_3d_contiguous(IntList sizes, IntList strides) {
  return is_dense_in_order(sizes, strides, kNdhwc);
}
bool is_channels_last(IntList sizes, IntList strides) {
  return is_strided_in_order(sizes, strides, kNhwc);
}
bool is_channels_last_3d(IntList sizes, IntList strides) {
  return is_strided_in_order(sizes, strides, kNdhwc);
}

bool is_non_overlapping_and_dense(IntList sizes, IntList strides) {
  if (is_contiguous(sizes, strides)) return true;
  std::int64_t expected = 1;
  for (const std::size_t d : by_stride(sizes, strides)) {
    if (strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

bool is_surely_non_overlapping(IntList sizes, IntList strides) {
  std::int64_t reach = 0;  // of the dimensions so far, in elements
  for (const std::size_t d : by_stride(sizes, strides)) {
    if (sizes[d] == 0) return true;
    if (strides[d] <= reach) return false;
    reach += strides[d] * (sizes[d] - 1);
  }
  return true;
}

std::int64_t storage_elements(IntList sizes, IntList strides, std::int64_t offset) {
  std::int64_t last = offset, elements = 0;
  bool overflow = false;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return 0;
    std::int64_t step = 0;
    overflow |= __builtin_mul_overflow(sizes[d] - 1, strides[d], &step);
    overflow |= __builtin_add_overflow(last, step, &last);
  }
  if (overflow || __builtin_add_overflow(last, 1, &elements))
    throw InvalidArgument(fmt::format("shape {} with strides {} and offset {} reaches too far",
                                      to_string(sizes), to_string(strides), offset));
  return elements;
}

void refuse_dim(std::int64_t dim, std::int64_t ndim, const char* what) {
  const std::int64_t range = std::max<std::int64_t>(ndim, 1);
  throw InvalidArgument(fmt::format("{}: dimension {} of a {}-d tensor; it may be {} to {}", what,
                                    dim, ndim, -range, range - 1));
}

void infer_sizes(IntList sizes, std::int64_t numel, std::int64_t* result) {
  std::int64_t known = 1;
  std::int64_t open = -1;
  const auto refuse = [&](const std::string& why) {
    return InvalidArgument(
        fmt::format("shape {} does not fit {} elements: {}", to_string(sizes), numel, why));
  };
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    result[d] = sizes[d];
    if (sizes[d] == -1) {
      if (open >= 0) throw refuse("only one size may be -1");
      open = static_cast<std::int64_t>(d);
    } else if (sizes[d] < 0 || __builtin_mul_overflow(known, sizes[d], &known)) {
      throw refuse("a size is negative or too large");
    }
  }
  if (open < 0) {
    if (known != numel) throw refuse(fmt::format("the product is {}", known));
    return;
  }
  if (known == 0) throw refuse("-1 could be anything beside a 0");
  if (numel % known != 0) throw refuse(fmt::format("{} does not divide them", known));
  result[open] = numel / known;
}

DimVector infer_sizes(IntList sizes, std::int64_t numel) {
  DimVector result(sizes.size());
  infer_sizes(sizes, numel, result.data());
  return result;
}

bool view_strides(IntList sizes, IntList strides, IntList new_sizes, std::int64_t* result) {
  if (numel_of(sizes) == 0) {
    if (sizes == new_sizes)
      std::copy(strides.begin(), strides.end(), result);
    else
      fill_contiguous_strides(new_sizes, result);
    return true;
  }
  // Runs of old dimensions that are contiguous among themselves are cut up anew, innermost first.
  std::size_t next = new_sizes.size();
  std::int64_t run_elements = 1;
  std::int64_t base = sizes.empty() ? 1 : strides.back();
  std::int64_t cut_elements = 1;
  const auto cut_run = [&] {
    while (next > 0 && (cut_elements < run_elements || new_sizes[next - 1] == 1)) {
      --next;
      result[next] = cut_elements * base;
      cut_elements *= new_sizes[next];
    }
    return cut_elements == run_elements;
  };
  for (std::size_t d = sizes.size(); d-- > 0;) {
    run_elements *= sizes[d];
    const bool run_ends = d == 0 || (sizes[d - 1] != 1 && strides[d - 1] != run_elements * base);
    if (!run_ends) continue;
    if (!cut_run()) return false;
    if (d > 0) {
      base = strides[d - 1];
      run_elements = cut_elements = 1;
    }
  }
  if (sizes.empty() && !cut_run()) return false;
  return next == 0;
}

DimVector broadcast_sizes(IntList a, IntList b, const char* what) {
  const std::size_t ndim = std::max(a.size(), b.size());
  DimVector result(ndim);
  for (std::size_t i = 0; i < ndim; ++i) {  // from the last dimension on
    const std::int64_t of_a = i < a.size() ? a[a.size() - 1 - i] : 1;
    const std::int64_t of_b = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (of_a != of_b && of_a != 1 && of_b != 1)
      throw InvalidArgument(fmt::format(
          "{}: shapes {} and {} do not broadcast: {} against {} in dimension -{}; sizes must be "
          "equal or one of them 1",
          what, to_string(a), to_string(b), of_a, of_b, i + 1));
    result[ndim - 1 - i] = of_a == 1 ? of_b : of_a;
  }
  return result;
}

}  // namespace tenon
