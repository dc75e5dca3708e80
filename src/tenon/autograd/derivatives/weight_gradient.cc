#include "tenon/autograd/derivatives/weight_gradient.h"

#include <algorithm>

#include "tenon/base/align.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/kernels/cpu/gemm.h"
#include "tenon/ops/kernels/cpu/workspaces.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"

namespace tenon::autograd {
namespace {

// Rows of the result computed at a time. A product that is cut costs more, since the other operand
// is packed anew for each piece (measured with OpenBLAS 0.3.21: 2 to 20 % for 16 pieces), so it is
// only where the whole would be larger than what it is computed from.
std::int64_t piece_rows(std::int64_t k, std::int64_t m, std::int64_t n) {
  constexpr std::int64_t kPieces = 16;
  constexpr std::int64_t kUnit = 8;  // rows that BLAS computes together
  if (m * n <= (m + n) * k) return m;
  return (m + kPieces * kUnit - 1) / (kPieces * kUnit) * kUnit;
}

// Calls use(first row, rows, place) after each piece, from several threads. place(first row) says
// where a piece goes.
template <typename Place, typename Use>
void compute_pieces(const Tensor& g, const Tensor& a, Place&& place, Use&& use) {
  const std::int64_t k = g.size(0), m = g.size(1), n = a.size(1);
  const auto item = static_cast<std::int64_t>(g.item_size());
  const std::int64_t rows = piece_rows(k, m, n);
  const auto* const from = static_cast<const char*>(g.const_data_ptr());
  const ops::cpu::Matrix right = {a.const_data_ptr(), n, false};
  parallel_for(0, m, rows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; row += rows) {
      const std::int64_t count = std::min(rows, end - row);
      void* const to = place(row);
      ops::cpu::gemm(g.dtype(), count, n, k, {from + row * item, m, true}, right, 0, to, n);
      use(row, count, to);
    }
  });
}

}  // namespace

bool has_weight_gradient(const Tensor& g, const Tensor& a) {
  return g.dim() == 2 && a.dim() == 2 && g.numel() > 0 && a.numel() > 0 && g.dtype() == a.dtype() &&
         (g.dtype() == DType::kF32 || g.dtype() == DType::kF64) && g.device() == Device{} &&
         a.device() == Device{};
}

Tensor weight_gradient(const Tensor& g_, const Tensor& a_) {
  const Tensor g = contiguous(g_), a = contiguous(a_);
  const Tensor out = empty({g.size(1), a.size(1)}, g.dtype());
  auto* const to = static_cast<char*>(out.data_ptr());
  const std::int64_t row_bytes = a.size(1) * static_cast<std::int64_t>(g.item_size());
  compute_pieces(
      g, a, [&](std::int64_t row) { return to + row * row_bytes; },
      [](std::int64_t, std::int64_t, const void*) {});
  return out;
}

void weight_gradient(const Tensor& g_, const Tensor& a_, GradientTaker& taker) {
  const Tensor g = contiguous(g_), a = contiguous(a_);
  const std::int64_t m = g.size(1), n = a.size(1);
  const std::int64_t rows = piece_rows(g.size(0), m, n);
  const std::size_t bytes = static_cast<std::size_t>(rows * n) * g.item_size();
  ops::cpu::Workspaces workspaces(bytes, (m + rows - 1) / rows);
  compute_pieces(
      g, a, [&](std::int64_t) { return workspaces.take(); },
      [&](std::int64_t row, std::int64_t count, void* piece) {
        taker.take(row * n, count * n, piece);
        workspaces.give(static_cast<char*>(piece));
      });
}

}  // namespace tenon::autograd
