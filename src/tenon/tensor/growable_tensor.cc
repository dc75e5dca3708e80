#include "tenon/tensor/growable_tensor.h"

#include <fmt/format.h>

#include "tenon/base/error.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"

namespace tenon {
namespace {

DimVector with_rows(std::int64_t rows, IntList row_sizes) {
  DimVector sizes{rows};
  for (const std::int64_t size : row_sizes) sizes.push_back(size);
  return sizes;
}

std::uint64_t checked_row_bytes(std::int64_t most_rows, IntList row_sizes, DType dtype) {
  const std::int64_t elements = checked_numel(with_rows(most_rows, row_sizes));
  if (elements == 0)
    throw InvalidArgument(fmt::format("growable tensor: {} rows of shape {} have no elements",
                                      most_rows, to_string(row_sizes)));
  return static_cast<std::uint64_t>(elements / most_rows) * item_size(dtype);
}

}  // namespace

GrowableTensor::GrowableTensor(std::shared_ptr<PagePool> pool, std::int64_t most_rows,
                               IntList row_sizes, DType dtype)
    : most_rows_(most_rows),
      row_sizes_(row_sizes.to_vector()),
      dtype_(dtype),
      row_bytes_(checked_row_bytes(most_rows, row_sizes, dtype)),
      buffer_(std::make_shared<GrowableBuffer>(
          std::move(pool), static_cast<std::uint64_t>(most_rows) * row_bytes_)) {}

Tensor GrowableTensor::rows(std::int64_t begin, std::int64_t end) const {
  if (begin < 0 || end < begin || end > length_)
    throw InvalidArgument(
        fmt::format("growable tensor: rows {} to {} of {}", begin, end, length_));
  auto* const first = static_cast<char*>(buffer_->data()) + bytes_of(begin);
  const Device device = buffer_->stream().device;
  DataPtr data = DataPtr::with_deleter(first, [kept = buffer_](void*) {}, device);
  const DimVector sizes = with_rows(end - begin, row_sizes_);
  return from_blob(std::move(data), bytes_of(end - begin), sizes, strides_for(sizes), dtype_);
}

// Pages are given back only where no tensor can touch them.
void GrowableTensor::reach(std::int64_t rows) {
  const bool alone = buffer_.use_count() == 1;
  if (alone || bytes_of(rows) > buffer_->size()) buffer_->resize(bytes_of(rows));
}

Tensor GrowableTensor::extend(std::int64_t count) {
  if (count < 0 || count > most_rows_ - length_)
    throw InvalidArgument(fmt::format(
        "growable tensor: {} more rows behind {}; {} were reserved when it was made", count,
        length_, most_rows_));
  reach(length_ + count);
  length_ += count;
  return rows(length_ - count, length_);
}

void GrowableTensor::append(const Tensor& rows) {
  const std::int64_t count = rows.dim() > 0 ? rows.size(0) : 0;
  const DimVector sizes = with_rows(count, row_sizes_);
  if (rows.dim() == 0 || !(rows.sizes() == IntList(sizes)))
    throw InvalidArgument(fmt::format("growable tensor: append of shape {} to rows of shape {}",
                                      to_string(rows.sizes()), to_string(IntList(row_sizes_))));
  const std::int64_t before = length_;
  const Tensor room = extend(count);
  try {
    if (count > 0) copy_(room, rows.detach());
  } catch (...) {
    truncate(before);
    throw;
  }
}

void GrowableTensor::truncate(std::int64_t length) {
  if (length < 0 || length > length_)
    throw InvalidArgument(fmt::format("growable tensor: truncate to {} of {} rows", length,
                                      length_));
  reach(length);
  length_ = length;
}

}  // namespace tenon
