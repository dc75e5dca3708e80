#include "tenon/memory/device_buffer.h"

#include <algorithm>

namespace tenon {
namespace {

Stream on_device(Stream stream, const DeviceAllocator& allocator) {
  return stream == Stream{} ? Stream{allocator.device(), 0} : stream;
}

}  // namespace

DeviceBuffer::DeviceBuffer(std::size_t size_bytes, Stream stream, DeviceAllocator& allocator)
    : allocator_(&allocator),
      stream_(on_device(stream, allocator)),
      data_(allocator.allocate_on(size_bytes, stream_)),
      size_bytes_(size_bytes),
      capacity_bytes_(size_bytes) {}

DeviceBuffer::DeviceBuffer(const void* source, std::size_t size_bytes, Stream stream,
                           DeviceAllocator& allocator)
    : DeviceBuffer(size_bytes, stream, allocator) {
  if (size_bytes > 0) allocator.backend().copy(data_.get(), source, size_bytes, stream_);
}

DeviceBuffer::DeviceBuffer(const DeviceBuffer& other, Stream stream)
    : DeviceBuffer(other.data(), other.size(), stream, *other.allocator_) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) {
  if (this == &other) return *this;
  data_ = std::move(other.data_);
  allocator_ = other.allocator_;
  stream_ = other.stream_;
  size_bytes_ = std::exchange(other.size_bytes_, 0);
  capacity_bytes_ = std::exchange(other.capacity_bytes_, 0);
  return *this;
}

void DeviceBuffer::move_to(std::size_t capacity_bytes, Stream stream) {
  DataPtr fresh = allocator_->allocate_on(capacity_bytes, on_device(stream, *allocator_));
  set_stream(stream);
  const std::size_t kept = std::min(size_bytes_, capacity_bytes);
  if (kept > 0) allocator_->backend().copy(fresh.get(), data_.get(), kept, stream_);
  data_ = std::move(fresh);  // the old block is reused behind the copy, by the stream's order
  capacity_bytes_ = capacity_bytes;
}

void DeviceBuffer::resize(std::size_t size_bytes, Stream stream) {
  reserve(size_bytes, stream);
  size_bytes_ = size_bytes;
}

void DeviceBuffer::reserve(std::size_t capacity_bytes, Stream stream) {
  if (capacity_bytes > capacity_bytes_)
    move_to(capacity_bytes, stream);
  else
    set_stream(stream);
}

void DeviceBuffer::shrink_to_fit(Stream stream) {
  if (size_bytes_ < capacity_bytes_)
    move_to(size_bytes_, stream);
  else
    set_stream(stream);
}

void DeviceBuffer::copy_and_wait(void* dest, const void* source, std::size_t size_bytes,
                                 Stream stream) const {
  const Stream on = on_device(stream, *allocator_);
  allocator_->backend().copy(dest, source, size_bytes, on);
  allocator_->backend().synchronize(on);
}

void DeviceBuffer::set_stream(Stream stream) {
  const Stream next = on_device(stream, *allocator_);
  if (next == stream_) return;
  if (data_ != nullptr) allocator_->record_stream(data_, next);
  stream_ = next;
}

}  // namespace tenon
