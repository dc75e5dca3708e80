#include "tenon/ops/plane_norms.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/ops/elementwise.h"
#include "tenon/ops/kernels/cpu/softmax_rows.h"
#include "tenon/ops/kernels/cpu/workspaces.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"

namespace tenon::ops {

void check_channels(const char* what, const Tensor& a, std::initializer_list<const Tensor*> all) {
  if (a.dim() < 2)
    throw InvalidArgument(
        fmt::format("{}: shape {} has no channels (dimension 1)", what, to_string(a.sizes())));
  for (const Tensor* p : all)
    if (p->defined() && p->numel() != a.size(1))
      throw InvalidArgument(fmt::format("{}: {} numbers for the {} channels of shape {}", what,
                                        p->numel(), a.size(1), to_string(a.sizes())));
}

Tensor by_channel(const Tensor& p, const Tensor& a) {
  DimVector sizes(static_cast<std::size_t>(a.dim()), 1);
  sizes[1] = p.numel();
  return p.reshape(sizes);
}

std::vector<double> numbers_of(const Tensor& t, std::int64_t channels, double otherwise) {
  std::vector<double> numbers(static_cast<std::size_t>(channels), otherwise);
  if (!t.defined()) return numbers;
  const Tensor dense = contiguous(t);
  tenon::detail::convert_elements(DType::kF64, numbers.data(), t.dtype(), dense.const_data_ptr(),
                                  channels);
  return numbers;
}

bool are_worth_calls(const Tensor& a) {
  constexpr std::int64_t kLong = 16, kFew = 256;
  const std::int64_t planes = a.size(0) * a.size(1);
  return a.device() == Device{} && a.is_contiguous() && a.numel() > 0 &&
         (planes <= kFew || a.numel() >= kLong * planes);
}

namespace {

// Of `more` numbers with that mean and mean of squared deviations beside `count` (Chan, Golub and
// LeVeque 1979).
void join_moments(double* of_all, double count, const double* of_more, double more) {
  const double apart = of_more[0] - of_all[0], both = count + more;
  of_all[0] += apart * more / both;
  of_all[1] = (of_all[1] * count + of_more[1] * more + apart * apart * count * more / both) / both;
}

}  // namespace

// Long rows go in pieces, which are joined in order.
Tensor moments_of_rows(const Tensor& a, std::int64_t length) {
  constexpr std::int64_t kPiece = 4096;
  const std::int64_t rows = a.numel() / length;
  const std::int64_t piece = std::min(length, kPiece), of_row = (length + piece - 1) / piece;
  const Tensor all = empty({rows, of_row, 2}, DType::kF64);
  auto* const found = all.data_ptr<double>();
  const DType compute = compute_dtype(a.dtype());
  const bool is_narrow = a.dtype() != compute;
  const auto moments = cpu::row_functions(compute).moments;
  const auto item = static_cast<std::int64_t>(a.item_size());
  const auto wide_item = static_cast<std::int64_t>(item_size(compute));
  // Short rows are widened together.
  const std::int64_t together =
      is_narrow && of_row == 1 ? std::max<std::int64_t>(1, 2048 / length) : 1;
  const auto* from = static_cast<const char*>(a.const_data_ptr());
  cpu::Workspaces rooms(is_narrow ? static_cast<std::size_t>(together * piece * wide_item) : 0,
                        rows * of_row);
  parallel_for(0, rows * of_row, even_grain(rows * of_row, 16384 / piece),
               [&](std::int64_t begin, std::int64_t end) {
                 char* const room = rooms.take();
                 for (std::int64_t first = begin; first < end; first += together) {
                   const std::int64_t some = std::min(together, end - first);
                   const std::int64_t in_row = first % of_row * piece;
                   const std::int64_t count = std::min(piece, length - in_row);
                   const char* data = from + (first / of_row * length + in_row) * item;
                   if (is_narrow) {
                     tenon::detail::convert_elements(compute, room, a.dtype(), data, some * count);
                     data = room;
                   }
                   for (std::int64_t r = 0; r < some; ++r) {
                     double* const at = found + 2 * (first + r);
                     moments(data + r * count * wide_item, count, at, at + 1);
                   }
                 }
                 rooms.give(room);
               });
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t p = 1; p < of_row; ++p)
      join_moments(found + 2 * r * of_row, static_cast<double>(p * piece),
                   found + 2 * (r * of_row + p),
                   static_cast<double>(std::min(piece, length - p * piece)));
  return contiguous(all.select(1, 0));
}

Tensor scale_planes(const Tensor& a, std::span<const PlaneNumbers> numbers) {
  constexpr std::int64_t kPiece = 2048;
  const std::int64_t planes = a.size(0) * a.size(1), length = a.numel() / planes;
  const Tensor out = empty(a.sizes(), a.dtype());
  const DType compute = compute_dtype(a.dtype());
  const auto scale = cpu::row_functions(compute).scale;
  const auto item = static_cast<std::int64_t>(a.item_size());
  const auto* from = static_cast<const char*>(a.const_data_ptr());
  auto* to = static_cast<char*>(out.data_ptr());
  const auto of_plane = [&](std::int64_t plane) {
    return numbers[static_cast<std::size_t>(plane) % numbers.size()];
  };
  const auto narrow_planes = [&](std::int64_t begin, std::int64_t end) {
    alignas(64) float room[2][kPiece];
    const std::int64_t whole = std::max<std::int64_t>(1, kPiece / length) * length;
    for (std::int64_t first = begin * length; first < end * length; first += whole)
      for (std::int64_t at = first; at < std::min(first + whole, end * length); at += kPiece) {
        const std::int64_t last = std::min({first + whole, end * length, at + kPiece});
        tenon::detail::convert_elements(compute, room[0], a.dtype(), from + at * item, last - at);
        for (std::int64_t x = at; x < last;) {
          const std::int64_t plane = x / length, next = std::min(last, (plane + 1) * length);
          const auto [factor, shift] = of_plane(plane);
          scale(room[1] + (x - at), room[0] + (x - at), next - x, factor, shift);
          x = next;
        }
        tenon::detail::convert_elements(a.dtype(), to + at * item, compute, room[1], last - at);
      }
  };
  parallel_for(0, planes, even_grain(planes, 16384 / length),
               [&](std::int64_t begin, std::int64_t end) {
                 if (a.dtype() != compute) return narrow_planes(begin, end);
                 for (std::int64_t i = begin; i < end; ++i) {
                   const auto [factor, shift] = of_plane(i);
                   const std::int64_t at = i * length * item;
                   scale(to + at, from + at, length, factor, shift);
                 }
               });
  return out;
}

}  // namespace tenon::ops
