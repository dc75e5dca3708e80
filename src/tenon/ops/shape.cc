#include "tenon/ops/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "tenon/base/parallel.h"
#include "tenon/ops/elementwise.h"
#include "tenon/ops/indices.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/copy_bytes.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/kernels/vulkan/elements.h"
#include "tenon/tensor/promotion.h"
#include "tenon/tensor/strided_loop.h"
#include "tenon/tensor/strided_rows.h"

namespace tenon::ops {
namespace {

// Copies without versions and gradients: the targets are views of fresh results.
void put(const Tensor& target, const Tensor& source) {
  if (target.numel() > 0 && !target.is_meta()) tenon::detail::copy_elements(target, source);
}

bool is_skipped(const Tensor& t) { return t.dim() == 1 && t.numel() == 0; }

// Keeps what lies on one side of a diagonal of the last two dimensions.
template <typename Keep>
Tensor triangle(const char* what, const Tensor& a, bool is_lower, std::int64_t diagonal,
                Keep&& keep) {
  device_to_offer(what, {&a});
  if (a.dim() < 2)
    throw InvalidArgument(
        fmt::format("{}: shape {} has fewer than two dimensions", what, to_string(a.sizes())));
  HostTurn host;
  if (vulkan::holds(a) && a.numel() > 0) {
    Tensor kept = empty(a.sizes(), a.dtype(), a.device());
    if (vulkan::triangle(kept, a, is_lower, diagonal)) return kept;
    host.take(what, a.device());
  }
  Tensor out = empty(a.sizes(), a.dtype(), a.device());
  if (out.is_meta() || out.numel() == 0) return out;
  const std::int64_t rows = a.size(-2), columns = a.size(-1);
  const auto item = static_cast<std::int64_t>(a.item_size());
  const auto kept = [&](std::int64_t row) {  // the columns that stay
    const auto [begin, end] = keep(row);
    const std::int64_t first = std::clamp<std::int64_t>(begin, 0, columns);
    return std::pair(first, std::clamp<std::int64_t>(end, first, columns));
  };
  // A contiguous matrix is copied row by row, only what stays of it. Of others, the copy takes the
  // columns of which anything stays, in the order of their memory.
  const bool is_in_line = a.is_contiguous();
  if (!is_in_line) {
    const std::int64_t first = kept(0).first, last = kept(rows - 1).second;
    put(out.narrow(-1, first, last - first), a.narrow(-1, first, last - first));
  }
  const auto* from = is_in_line ? static_cast<const char*>(a.const_data_ptr()) : nullptr;
  auto* const to = static_cast<char*>(out.data_ptr());
  const std::int64_t row_bytes = columns * item;
  parallel_for(0, out.numel() / columns, std::max<std::int64_t>(1, 131072 / row_bytes),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t r = begin, row = begin % rows; r < end; ++r) {
                   const auto [first, last] = kept(row);
                   char* const at = to + r * row_bytes;
                   std::fill_n(at, first * item, 0);
                   if (from != nullptr)
                     std::copy_n(from + r * row_bytes + first * item, (last - first) * item,
                                 at + first * item);
                   std::fill(at + last * item, at + row_bytes, 0);
                   if (++row == rows) row = 0;
                 }
               });
  return out;
}

// Dense tensors on the host, row by row: the result is written once, along memory. False, and
// nothing is done, where rows are very short or long, or differ in dtype or order.
bool put_rows_together(const Tensor& out, std::span<const Tensor> tensors, std::size_t dim) {
  constexpr std::int64_t kShortBytes = 64, kLongBytes = 4096;
  if (out.device() != Device{} || out.numel() == 0) return false;
  std::int64_t rows = 1, row_bytes = 0;
  for (std::size_t d = 0; d < dim; ++d) rows *= out.sizes()[d];
  std::vector<std::pair<const char*, std::int64_t>> pieces;
  for (const Tensor& t : tensors) {
    if (t.numel() == 0) continue;
    const std::int64_t bytes = t.numel() / rows * static_cast<std::int64_t>(t.item_size());
    if (t.dtype() != out.dtype() || !t.is_contiguous() || bytes < kShortBytes || bytes > kLongBytes)
      return false;
    pieces.emplace_back(static_cast<const char*>(t.const_data_ptr()), bytes);
    row_bytes += bytes;
  }
  if (rows == 1) return false;
  auto* const to = static_cast<char*>(out.data_ptr());
  parallel_for(0, rows, std::max<std::int64_t>(1, 131072 / row_bytes),
               [&](std::int64_t begin, std::int64_t end) {
                 char* at = to + begin * row_bytes;
                 for (std::int64_t r = begin; r < end; ++r)
                   for (const auto& [from, bytes] : pieces) {
                     tenon::detail::copy_bytes(at, from + r * bytes,
                                               static_cast<std::size_t>(bytes));
                     at += bytes;
                   }
               });
  return true;
}

}  // namespace

Tensor detail::cat(std::span<const Tensor> tensors, std::int64_t dim) {
  std::vector<const Tensor*> all;
  for (const Tensor& t : tensors) all.push_back(&t);
  if (all.empty()) throw InvalidArgument("cat: there are no tensors");
  const Device device = common_device_to_move("cat", all);
  const auto shape_of =
      std::find_if(tensors.begin(), tensors.end(), [](const Tensor& t) { return !is_skipped(t); });
  const Tensor& model = shape_of == tensors.end() ? tensors[0] : *shape_of;
  if (model.dim() == 0) throw InvalidArgument("cat: 0-d tensors; use stack");
  const auto d = static_cast<std::size_t>(wrap_dim(dim, model.dim(), "cat"));
  DimVector sizes = model.sizes().to_vector();
  sizes[d] = 0;
  ResultType dtype;
  for (const Tensor& t : tensors) {
    dtype.add(t);
    if (is_skipped(t)) continue;
    bool fits = t.dim() == model.dim();
    for (std::size_t i = 0; fits && i < sizes.size(); ++i)
      fits = i == d || t.sizes()[i] == sizes[i];
    if (!fits)
      throw InvalidArgument(fmt::format("cat: shapes {} and {} differ in more than dimension {}",
                                        to_string(model.sizes()), to_string(t.sizes()), d));
    if (__builtin_add_overflow(sizes[d], t.sizes()[d], &sizes[d]))
      throw InvalidArgument(fmt::format(
          "cat: more than 2^63 - 1 elements along dimension {} of shape {}", d,
          to_string(t.sizes())));
  }
  Tensor out = empty(sizes, dtype.get(), device);
  if (put_rows_together(out, tensors, d)) return out;
  std::int64_t at = 0;
  for (const Tensor& t : tensors) {
    if (is_skipped(t)) continue;
    put(out.narrow(static_cast<std::int64_t>(d), at, t.sizes()[d]), t);
    at += t.sizes()[d];
  }
  return out;
}

Tensor detail::stack(std::span<const Tensor> tensors, std::int64_t dim) {
  if (tensors.empty()) throw InvalidArgument("stack: there are no tensors");
  const std::int64_t d = wrap_dim(dim, tensors[0].dim() + 1, "stack");
  std::vector<Tensor> raised;
  for (const Tensor& t : tensors) {
    if (!(t.sizes() == tensors[0].sizes()))
      throw InvalidArgument(fmt::format("stack: shapes {} and {} differ",
                                        to_string(tensors[0].sizes()), to_string(t.sizes())));
    raised.push_back(t.unsqueeze(d));
  }
  return ops::cat(raised, d);
}

Tensor detail::flip(const Tensor& a, IntList dims) {
  const Device device = device_to_offer("flip", {&a});
  std::uint64_t flipped = 0;
  for (const std::int64_t dim : dims) {
    const std::uint64_t bit = std::uint64_t{1} << wrap_dim(dim, a.dim(), "flip");
    if ((flipped & bit) != 0)
      throw InvalidArgument(
          fmt::format("flip: dimension {} comes twice in {}", dim, to_string(dims)));
    flipped |= bit;
  }
  const Tensor out = elementwise_result(a.sizes(), a.dtype(), device, {&a});
  if (out.is_meta() || out.numel() == 0) return out;
  HostTurn host;
  if (vulkan::holds(a)) {
    if (vulkan::flip(out, a, flipped)) return out;
    host.take("flip", device);
  }
  DimVector strides = a.strides().to_vector();
  const auto item = static_cast<std::int64_t>(a.item_size());
  const char* last = static_cast<const char*>(a.const_data_ptr());
  for (std::size_t d = 0; d < strides.size(); ++d) {
    if (((flipped >> d) & 1) == 0) continue;
    last += (a.sizes()[d] - 1) * strides[d] * item;
    strides[d] = -strides[d];
  }
  const StridedLoop::Operand operands[2] = {
      {out.data_ptr(), out.sizes(), out.strides(), item},
      {const_cast<char*>(last), out.sizes(), strides, item}};
  tenon::detail::copy_items(StridedLoop(out.sizes(), operands, 2), item);
  return out;
}

Tensor detail::roll(const Tensor& a, IntList shifts, IntList dims) {
  const Device device = device_to_offer("roll", {&a});
  if (dims.empty() && shifts.size() == 1) {
    const Tensor flat = roll(a.reshape({-1}), shifts, {0});
    return flat.view(a.sizes());
  }
  if (dims.size() != shifts.size())
    throw InvalidArgument(
        fmt::format("roll: shifts {} for dimensions {}", to_string(shifts), to_string(dims)));
  Tensor from = a;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    static_cast<void>(wrap_dim(dims[i], a.dim(), "roll"));
    const std::int64_t size = a.dim() == 0 ? 0 : a.size(dims[i]);
    if (size == 0) continue;
    const std::int64_t shift = ((shifts[i] % size) + size) % size;
    Tensor to = empty(a.sizes(), a.dtype(), device);
    put(to.narrow(dims[i], shift, size - shift), from.narrow(dims[i], 0, size - shift));
    put(to.narrow(dims[i], 0, shift), from.narrow(dims[i], size - shift, shift));
    from = to;
  }
  return from.is_same(a) ? clone(a) : from;
}

Tensor detail::repeat(const Tensor& a, IntList repeats) {
  const Device device = device_to_offer("repeat", {&a});
  if (repeats.size() < static_cast<std::size_t>(a.dim()))
    throw InvalidArgument(
        fmt::format("repeat: {} for shape {}; there must be one for each dimension",
                    to_string(repeats), to_string(a.sizes())));
  // Seen as [r0, s0, r1, s1, ...] the result is the source broadcast along every r. Without the
  // ones these are at most 62 dimensions, since a tensor has fewer than 2^63 elements.
  const std::size_t added = repeats.size() - static_cast<std::size_t>(a.dim());
  DimVector sizes, split, source;
  for (std::size_t d = 0; d < repeats.size(); ++d) {
    const std::int64_t size = d < added ? 1 : a.sizes()[d - added];
    if (repeats[d] < 0)
      throw InvalidArgument(fmt::format("repeat: {} is negative", to_string(repeats)));
    sizes.push_back(checked_numel({size, repeats[d]}));
    if (repeats[d] != 1) split.push_back(repeats[d]), source.push_back(1);
    if (size != 1) split.push_back(size), source.push_back(size);
  }
  Tensor out = empty(sizes, a.dtype(), device);
  if (out.numel() > 0) put(out.view(split), contiguous(a).view(source));
  return out;
}

Tensor detail::pad(const Tensor& a, IntList pad, const Scalar& value) {
  const Device device = device_to_offer("pad", {&a});
  const auto ndim = static_cast<std::size_t>(a.dim());
  if (pad.size() % 2 != 0 || pad.size() > 2 * ndim)
    throw InvalidArgument(fmt::format("pad: {} for shape {}; give pairs from the last dimension on",
                                      to_string(pad), to_string(a.sizes())));
  DimVector sizes = a.sizes().to_vector();
  Tensor source = a;
  DimVector starts(ndim, 0);
  for (std::size_t i = 0; i < pad.size() / 2; ++i) {
    const std::size_t d = ndim - 1 - i;
    const std::int64_t before = pad[2 * i];
    const std::int64_t after = pad[2 * i + 1];
    constexpr std::int64_t kMost = std::int64_t{1} << 60;  // so that sums do not overflow
    sizes[d] += std::clamp(before, -kMost, kMost) + std::clamp(after, -kMost, kMost);
    if (sizes[d] < 0)
      throw InvalidArgument(fmt::format("pad: {} leaves nothing of dimension {} of shape {}",
                                        to_string(pad), d, to_string(a.sizes())));
    const std::int64_t cropped = -std::clamp<std::int64_t>(before, -a.sizes()[d], 0);
    const std::int64_t kept =
        std::max<std::int64_t>(0, a.sizes()[d] - cropped + std::min<std::int64_t>(0, after));
    source = source.narrow(static_cast<std::int64_t>(d), cropped, kept);
    starts[d] = std::clamp<std::int64_t>(before, 0, sizes[d] - kept);
  }
  // The host writes each element once, unless rows are short and so their sides, too; a device does
  // not run a kernel for every side.
  constexpr std::int64_t kLongBytes = 2048;
  const bool by_sides =
      device == Device{} &&
      (ndim == 0 || sizes.back() * static_cast<std::int64_t>(a.item_size()) >= kLongBytes);
  Tensor out = by_sides ? empty(sizes, a.dtype()) : full(sizes, value, a.dtype(), device);
  Tensor inside = out;
  for (std::size_t d = 0; d < ndim; ++d) {
    const auto dim = static_cast<std::int64_t>(d);
    const std::int64_t last = starts[d] + source.sizes()[d];
    if (by_sides) {
      tenon::detail::fill_elements(inside.narrow(dim, 0, starts[d]), value);
      tenon::detail::fill_elements(inside.narrow(dim, last, sizes[d] - last), value);
    }
    inside = inside.narrow(dim, starts[d], source.sizes()[d]);
  }
  put(inside, source);
  return out;
}

namespace {

// Diagonals beyond all elements, where adding a row's number does not overflow.
std::int64_t within_reach(std::int64_t diagonal) {
  constexpr std::int64_t kFar = INT64_MAX / 2;
  return std::clamp(diagonal, -kFar, kFar);
}

}  // namespace

Tensor detail::tril(const Tensor& a, std::int64_t k) {
  const std::int64_t diagonal = within_reach(k);
  return triangle("tril", a, true, diagonal, [=](std::int64_t row) {
    return std::pair<std::int64_t, std::int64_t>(0, row + diagonal + 1);
  });
}

Tensor detail::triu(const Tensor& a, std::int64_t k) {
  const std::int64_t diagonal = within_reach(k);
  return triangle("triu", a, false, diagonal, [=](std::int64_t row) {
    return std::pair<std::int64_t, std::int64_t>(row + diagonal, INT64_MAX);
  });
}

}  // namespace tenon::ops
