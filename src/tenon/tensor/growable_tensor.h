// A tensor that grows along its first dimension without a copy. O(elements written + pages).
#pragma once

#include <memory>

#include "tenon/memory/growable/growable_buffer.h"
#include "tenon/tensor/tensor.h"

namespace tenon {

// [length, rest...] over a GrowableBuffer. append writes behind the rows that are there, at an
// address that never changes. So tensors that were taken before stay valid and show the same bytes.
//
//   length 3   | row | row | row | reserved addresses ....... |   most rows
//
// Tensors are views of one storage, which is as long as the buffer: its memory goes with the last
// of them, and a change through one counts in the version of all. append and extend fill rows that
// no tensor has, so they count as no change. truncate does: later rows may replace those beyond.
// lazy_clone() of one copies at once: the rows stay where they are.
//
// Streams: append, extend and truncate use the buffer on the current stream. Call record_stream for
// any other stream whose work reads or writes the tensors.
// Threads: append, extend and truncate change the storage, so meanwhile other threads may read the
// bytes of its tensors and nothing else; commit() from any thread (GrowableBuffer).
class GrowableTensor {
 public:
  // Room for `most_rows` rows of the shape `row_sizes`; no memory yet. Throws InvalidArgument where
  // that is no size, and what GrowableBuffer throws.
  GrowableTensor(std::shared_ptr<PagePool> pool, std::int64_t most_rows, IntList row_sizes,
                 DType dtype);
  // The rows of `room`, none of them used yet: for a device without pages. Throws InvalidArgument
  // unless it is a contiguous tensor of at least one element, without gradient, that begins its
  // storage.
  explicit GrowableTensor(const Tensor& room);

  // Rows that there are, and that there may be.
  std::int64_t length() const { return length_; }
  std::int64_t most_rows() const { return most_rows_; }
  // All rows, or those of [begin, end).
  Tensor tensor() const { return rows(0, length_); }
  Tensor rows(std::int64_t begin, std::int64_t end) const;

  // Copies [n, rest...] behind the last row, converted to the dtype. Throws InvalidArgument for
  // another shape and beyond the most rows; OutOfMemory. Either leaves the tensor as it was.
  void append(const Tensor& rows);
  // Makes `count` rows of undefined contents behind the last one and returns them, for a kernel to
  // write.
  Tensor extend(std::int64_t count);
  // Only the first `length` rows stay, and rows beyond may be written again. The pages beyond go
  // back to the pool in stream order; while tensors of the buffer live, at a later call after that.
  void truncate(std::int64_t length);
  // --- Throw InvalidArgument unless it was made with a pool.
  // Memory for so many rows ahead of need. From any thread.
  void commit(std::int64_t rows) { of_pages().commit(bytes_of(rows)); }

  // Work queued on that stream uses the rows, too.
  void record_stream(Stream stream) { of_pages().record_stream(stream); }

  // What its rows lie in.
  const GrowableBuffer& buffer() const { return of_pages(); }

 private:
  GrowableBuffer& of_pages() const;
  Tensor view_of(std::int64_t begin, std::int64_t end) const;
  void set_buffer_size(std::uint64_t size_bytes);
  void use_current_stream();
  std::uint64_t bytes_of(std::int64_t rows) const {
    return static_cast<std::uint64_t>(rows) * row_bytes_;
  }

  const std::int64_t most_rows_;
  const DimVector row_sizes_;
  const DType dtype_;
  const std::uint64_t row_bytes_;
  const std::shared_ptr<GrowableBuffer> buffer_;  // null: all memory is there
  const Storage storage_;  // of all tensors
  std::int64_t length_ = 0;
};

}  // namespace tenon
