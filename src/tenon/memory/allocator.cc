#include "tenon/memory/allocator.h"

#include <cstring>

#include "tenon/base/byte_size.h"
#include "tenon/base/check.h"
#include "tenon/base/error.h"
#include "tenon/memory/raw_blocks.h"

namespace tenon {

DataPtr Allocator::clone(const void* data, std::size_t size_bytes) {
  if (data == nullptr && size_bytes > 0)
    raise<InvalidArgument>("clone: {} bytes from a null pointer", size_bytes);
  DataPtr copy = allocate(size_bytes);
  if (size_bytes > 0) copy_data(copy.get(), data, size_bytes);
  return copy;
}

std::optional<DataPtr> Allocator::try_allocate(std::size_t size_bytes) {
  try {
    return allocate(size_bytes);
  } catch (const OutOfMemory&) {
    return std::nullopt;
  }
}

bool Allocator::is_simple_data_ptr(const DataPtr& data) const {
  return data.get_context() == nullptr || data.get_context() == data.get();
}

void* Allocator::raw_allocate(std::size_t size_bytes) {
  const DeleterFn deleter = raw_deleter();
  if (deleter == nullptr)
    throw InvalidArgument("raw_allocate: this allocator has no raw API; use allocate");
  DataPtr data = allocate(size_bytes);
  if (deleter == &free_raw) return shared_raw_table().hold(data);
  TENON_CHECK(data == nullptr || (is_simple_data_ptr(data) && data.get_deleter() == deleter),
              "raw_allocate: allocate gave a block that raw_deleter cannot free");
  void* raw = data.get();
  static_cast<void>(data.release_context());
  return raw;
}

void Allocator::raw_deallocate(void* data) {
  const DeleterFn deleter = raw_deleter();
  if (deleter == nullptr)
    throw InvalidArgument("raw_deallocate: this allocator has no raw API; drop the DataPtr");
  if (data != nullptr) deleter(data);
}

AllocatorAttachment& Allocator::attachment(
    std::unique_ptr<AllocatorAttachment> (*make)(Allocator&)) {
  AllocatorAttachment* held = attachment_.load(std::memory_order_acquire);
  if (held != nullptr) return *held;
  std::unique_ptr<AllocatorAttachment> made = make(*this);
  if (attachment_.compare_exchange_strong(held, made.get(), std::memory_order_acq_rel))
    return *made.release();
  return *held;  // another thread was faster
}

void Allocator::end_attachment(DataPtr (*unwrap)(DataPtr)) {
  if (AllocatorAttachment* held = attachment_.load(std::memory_order_acquire))
    held->before_end(unwrap);
}

void Allocator::default_copy_data(void* dest, const void* src, std::size_t size_bytes) const {
  if (size_bytes > 0) std::memcpy(dest, src, size_bytes);
}

void refuse_size(std::size_t size_bytes) {
  raise<InvalidArgument>("allocate: {} bytes is more than any request may be ({})", size_bytes,
                         format_byte_size(kMaxRequestBytes));
}

void refuse_memory(const char* who, Device device, std::size_t size_bytes, std::string advice) {
  throw OutOfMemory({.allocator = who,
                     .device = to_string(device),
                     .requested_bytes = size_bytes,
                     .idle = {},
                     .advice = std::move(advice)});
}

DataPtr require_chunk(DataPtr memory, std::size_t size_bytes, const char* who) {
  if (memory != nullptr) return memory;
  refuse_memory(who, memory.device(), size_bytes, "its upstream allocator returned null");
}

}  // namespace tenon
