#include "tenon/tensor/growable_tensor.h"

#include <fmt/format.h>

#include "tenon/base/error.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/defined.h"
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
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(elements), item_size(dtype), &bytes))
    throw InvalidArgument(
        fmt::format("growable tensor: {} rows of shape {} of {} are 2^64 bytes or more; give fewer",
                    most_rows, to_string(row_sizes), dtype_name(dtype)));
  return bytes / static_cast<std::uint64_t>(most_rows);
}

const Tensor& checked_room(const Tensor& room) {
  detail::check_defined("growable tensor", room);
  if (room.requires_grad())
    throw InvalidArgument(fmt::format(
        "growable tensor: its room of shape {} requires a gradient; give it detach()",
        to_string(room.sizes())));
  if (room.layout() != Layout::kStrided || !room.is_contiguous() || room.storage_offset() != 0)
    throw InvalidArgument("growable tensor: its room must be contiguous and begin its storage");
  return room;
}

// Of the whole range, since set_nbytes takes no more than a storage is made with; then empty.
Storage storage_over(const std::shared_ptr<GrowableBuffer>& buffer) {
  DataPtr data = DataPtr::with_deleter(buffer->data(), [kept = buffer](void*) {},
                                       buffer->stream().device);
  Storage storage(buffer->reserved(), std::move(data));
  storage.set_nbytes(0);
  return storage;
}

}  // namespace

GrowableTensor::GrowableTensor(std::shared_ptr<PagePool> pool, std::int64_t most_rows,
                               IntList row_sizes, DType dtype)
    : most_rows_(most_rows),
      row_sizes_(row_sizes.to_vector()),
      dtype_(dtype),
      row_bytes_(checked_row_bytes(most_rows, row_sizes, dtype)),
      buffer_(std::make_shared<GrowableBuffer>(
          std::move(pool), static_cast<std::uint64_t>(most_rows) * row_bytes_)),
      storage_(storage_over(buffer_)) {}

GrowableTensor::GrowableTensor(const Tensor& room)
    : most_rows_(checked_room(room).dim() == 0 ? 0 : room.size(0)),
      row_sizes_(room.dim() == 0 ? DimVector() : room.sizes().without_first(1).to_vector()),
      dtype_(room.dtype()),
      row_bytes_(checked_row_bytes(most_rows_, row_sizes_, dtype_)),
      storage_(room.storage()) {}

GrowableBuffer& GrowableTensor::of_pages() const {
  if (buffer_ == nullptr)
    throw InvalidArgument("growable tensor: its rows lie in a tensor, not in a pool's pages");
  return *buffer_;
}

Tensor GrowableTensor::rows(std::int64_t begin, std::int64_t end) const {
  if (begin < 0 || end < begin || end > length_)
    throw InvalidArgument(
        fmt::format("growable tensor: rows {} to {} of {}", begin, end, length_));
  return view_of(begin, end);
}

Tensor GrowableTensor::view_of(std::int64_t begin, std::int64_t end) const {
  const DimVector sizes = with_rows(end - begin, row_sizes_);
  const auto offset = static_cast<std::int64_t>(bytes_of(begin) / item_size(dtype_));
  return Tensor(make_intrusive<TensorImpl>(storage_, dtype_, sizes, strides_for(sizes), offset));
}

void GrowableTensor::set_buffer_size(std::uint64_t size_bytes) {
  const std::uint64_t before = buffer_->size();
  buffer_->resize(size_bytes);
  try {
    storage_.set_nbytes(size_bytes);
  } catch (...) {
    buffer_->resize(before);
    throw;
  }
}

void GrowableTensor::use_current_stream() {
  if (buffer_ == nullptr) return;
  const Stream stream = current_stream(buffer_->stream().device);
  if (stream != buffer_->stream()) buffer_->record_stream(stream);
}

Tensor GrowableTensor::extend(std::int64_t count) {
  if (count < 0 || count > most_rows_ - length_)
    throw InvalidArgument(fmt::format(
        "growable tensor: {} more rows behind {}; {} were reserved when it was made", count,
        length_, most_rows_));
  use_current_stream();
  const std::uint64_t size_bytes = bytes_of(length_ + count);
  if (buffer_ != nullptr && size_bytes > buffer_->size()) set_buffer_size(size_bytes);
  Tensor fresh = view_of(length_, length_ + count).data();
  length_ += count;
  return fresh;
}

void GrowableTensor::append(const Tensor& rows) {
  detail::check_defined("append", rows);
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
  use_current_stream();
  if (length < length_) rows(0, 0).impl()->bump_version();
  length_ = length;
  if (buffer_ == nullptr) return;
  const bool alone = storage_.use_count() == 1;  // pages go back only where no tensor uses them
  if (alone && bytes_of(length) < buffer_->size()) set_buffer_size(bytes_of(length));
}

}  // namespace tenon
