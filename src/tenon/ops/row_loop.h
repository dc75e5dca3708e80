// Operators that work on one dimension at a time.
#pragma once

#include <cstdint>

#include "tenon/base/parallel.h"
#include "tenon/ops/elementwise.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/tensor.h"

namespace tenon::ops {

// A floating-point tensor as dense rows along `dim` in the dtype it is computed in, and back: the
// tensor itself where it is so already, else a copy.
class RowView {
 public:
  RowView(const Tensor& a, std::int64_t dim)
      : dim_(dim),
        rows_(contiguous(to(a.dim() == 0 ? a : a.movedim(dim, -1), compute_dtype(a.dtype())))) {}

  const Tensor& rows() const { return rows_; }
  std::int64_t length() const { return rows_.dim() == 0 ? 1 : rows_.size(-1); }
  std::int64_t count() const { return length() == 0 ? 0 : rows_.numel() / length(); }

  // Runs body(row number, input row) for all rows, on several threads where they are many.
  template <typename Body>
  void for_each(Body&& body) const {
    if (rows_.is_meta() || rows_.numel() == 0) return;
    const auto* data = static_cast<const char*>(rows_.const_data_ptr());
    const auto bytes = static_cast<std::int64_t>(rows_.item_size()) * length();
    parallel_for(0, count(), even_grain(count(), 16384 / length()),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) body(i, data + i * bytes);
                 });
  }

  // Results in the shape of rows() take the place and dtype of the original.
  Tensor back(const Tensor& results, DType dtype) const {
    const Tensor placed = results.dim() == 0 ? results : results.movedim(-1, dim_);
    return contiguous(to(placed, dtype));
  }

 private:
  const std::int64_t dim_;
  const Tensor rows_;
};

}  // namespace tenon::ops
