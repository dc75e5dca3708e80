// Buffers that are allocated, grown and freed in the order of a stream: RMM's device_buffer and
// device_uvector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "tenon/memory/device_allocator.h"

namespace tenon {

// Bytes on one stream, uninitialised. They are allocated, copied and freed in the order of the
// stream that the buffer then has, so no function waits.
//
// One owner; not thread-safe. Failure: OutOfMemory, buffer unchanged. Growth copies: O(size) bytes.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(DeviceAllocator& allocator) : DeviceBuffer(0, Stream{}, allocator) {}
  // On a stream of the allocator's device; Stream{} of another device means its default stream.
  DeviceBuffer(std::size_t size_bytes, Stream stream, DeviceAllocator& allocator);
  // A copy of `size_bytes` at `source`, on the host or the device.
  DeviceBuffer(const void* source, std::size_t size_bytes, Stream stream,
               DeviceAllocator& allocator);
  // A copy, as large as the other's size.
  DeviceBuffer(const DeviceBuffer& other, Stream stream);
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : allocator_(other.allocator_),
        stream_(other.stream_),
        data_(std::move(other.data_)),
        size_bytes_(std::exchange(other.size_bytes_, 0)),
        capacity_bytes_(std::exchange(other.capacity_bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other);

  // Where it is, how many bytes there are, which stream and allocator serve it.
  void* data() { return data_.get(); }
  const void* data() const { return data_.get(); }
  std::size_t size() const { return size_bytes_; }
  std::int64_t ssize() const { return static_cast<std::int64_t>(size_bytes_); }
  std::size_t capacity() const { return capacity_bytes_; }  // what fits without new memory
  bool is_empty() const { return size_bytes_ == 0; }
  Stream stream() const { return stream_; }
  DeviceAllocator& memory_resource() const { return *allocator_; }

  // The first min(old, new) bytes stay. Within the capacity nothing is allocated.
  void resize(std::size_t size_bytes, Stream stream);
  void reserve(std::size_t capacity_bytes, Stream stream);
  void shrink_to_fit(Stream stream);
  // The stream of the next call and of the end; resize, reserve and shrink_to_fit set it, too. The
  // caller orders the two streams' work. Throws InvalidArgument where the allocator refuses
  // record_stream (pool, buddy, plan): there a buffer stays on its stream.
  void set_stream(Stream stream);

 private:
  template <typename T>
  friend class DeviceUvector;
  void move_to(std::size_t capacity_bytes, Stream stream);
  void copy_and_wait(void* dest, const void* source, std::size_t size_bytes, Stream stream) const;

  DeviceAllocator* allocator_;
  Stream stream_;
  DataPtr data_;
  std::size_t size_bytes_ = 0;
  std::size_t capacity_bytes_ = 0;
};

// The same for elements that bytes may be copied of. Elements begin uninitialised.
template <typename T>
class DeviceUvector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  DeviceUvector(std::size_t size, Stream stream, DeviceAllocator& allocator)
      : buffer_(bytes(size), stream, allocator) {}
  DeviceUvector(const DeviceUvector& other, Stream stream) : buffer_(other.buffer_, stream) {}

  // As DeviceBuffer's, in elements.
  std::size_t size() const { return buffer_.size() / sizeof(T); }
  std::size_t capacity() const { return buffer_.capacity() / sizeof(T); }
  bool is_empty() const { return buffer_.is_empty(); }
  T* data() { return static_cast<T*>(buffer_.data()); }
  const T* data() const { return static_cast<const T*>(buffer_.data()); }
  T* begin() { return data(); }
  T* end() { return data() + size(); }
  // Requires: index < size. An address on the device, not for the host to read.
  T* element_ptr(std::size_t index) { return data() + index; }
  const T* element_ptr(std::size_t index) const { return data() + index; }
  Stream stream() const { return buffer_.stream(); }
  void set_stream(Stream stream) { buffer_.set_stream(stream); }

  // Waits for the stream, since `value` and the result are the host's.
  void set_element(std::size_t index, const T& value, Stream stream) {
    buffer_.copy_and_wait(element_ptr(index), &value, sizeof(T), stream);
  }
  // Likewise.
  T element(std::size_t index, Stream stream) const {
    T value;
    buffer_.copy_and_wait(&value, element_ptr(index), sizeof(T), stream);
    return value;
  }
  // The first and the last. Require: not empty.
  T front_element(Stream stream) const { return element(0, stream); }
  T back_element(Stream stream) const { return element(size() - 1, stream); }

  // As DeviceBuffer's; `size` and `capacity` in elements.
  void resize(std::size_t size, Stream stream) { buffer_.resize(bytes(size), stream); }
  void reserve(std::size_t capacity, Stream stream) { buffer_.reserve(bytes(capacity), stream); }
  void shrink_to_fit(Stream stream) { buffer_.shrink_to_fit(stream); }
  // The elements' bytes; the vector is empty then.
  DeviceBuffer release() {
    DeviceBuffer out(buffer_.memory_resource());
    std::swap(out, buffer_);
    return out;
  }

 private:
  // An overflow becomes a size that every allocator refuses by name.
  static std::size_t bytes(std::size_t size) {
    std::size_t product = 0;
    return __builtin_mul_overflow(size, sizeof(T), &product) ? ~std::size_t{0} : product;
  }

  DeviceBuffer buffer_;
};

// The names that RMM's documents use.
using device_buffer = DeviceBuffer;
template <typename T>
using device_uvector = DeviceUvector<T>;

}  // namespace tenon
