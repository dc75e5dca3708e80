// The contract that everything which hands out memory fulfils.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "tenon/base/align.h"
#include "tenon/memory/data_ptr.h"

namespace tenon {

// Something that ends with an allocator, kept there by a layer above it. Its destructor runs last:
// the allocator can do nothing any more.
class AllocatorAttachment {
 public:
  virtual ~AllocatorAttachment() = default;
  // An adaptor ends, and still takes blocks back. `unwrap` turns a block of it into the one of its
  // upstream that stands behind it.
  virtual void before_end(DataPtr (*unwrap)(DataPtr)) { static_cast<void>(unwrap); }
};

// Hands out memory on one device. A custom allocator overrides allocate and copy_data (examples/
// has one in ten lines), and raw_deleter if its memory can be freed by the data pointer alone.
//
// Zero bytes is a valid request: a null pointer that keeps its device. A request that cannot be met
// throws OutOfMemory; a size above kMaxRequestBytes throws InvalidArgument.
//
// Thread safety: Tenon's own allocators may be called from any thread, and a block may be freed on
// any thread. A custom allocator states its own rules. Blocks must not outlive their allocator.
// Alignment: alignment(), in bytes: 16 or more for `unified` and PageGuardAllocator, 64 or more for
// the host's memory, 256 or more for other policies; the driver's, or a plan's, where that is less.
// Complexity: each allocator's own.
class Allocator {
 public:
  Allocator() = default;
  Allocator(const Allocator&) {}  // the attachment stays with the original
  // Takes nothing over: an allocator's attachment is its own.
  Allocator& operator=(const Allocator&) { return *this; }
  virtual ~Allocator() { delete attachment_.load(std::memory_order_acquire); }

  // A block of at least `size_bytes`, uninitialised; freed when the DataPtr is dropped.
  virtual DataPtr allocate(std::size_t size_bytes) = 0;

  // The same with lack of memory as a value. What else is wrong with a request still throws.
  std::optional<DataPtr> try_allocate(std::size_t size_bytes);

  // The bytes of a block that its owner may use, from the first on. So a container grows in place
  // before it moves. 0: the allocator does not say.
  virtual std::size_t usable_size(const DataPtr& data) const {
    static_cast<void>(data);
    return 0;
  }

  // A new block with the same bytes, by copy_data. Throws InvalidArgument for a null pointer to
  // more than zero bytes, and what allocate throws.
  DataPtr clone(const void* data, std::size_t size_bytes);

  // True when the data pointer is all that the deleter needs, so that the raw API may own it.
  virtual bool is_simple_data_ptr(const DataPtr& data) const;

  // The deleter for memory of raw_allocate; null: no raw API. An allocator whose deleter needs a
  // context returns free_raw (raw_blocks.h), which finds it by the address, for wrappers too.
  virtual DeleterFn raw_deleter() const { return nullptr; }

  // Every block starts at a multiple of this power of two.
  virtual std::size_t alignment() const { return alignof(std::max_align_t); }

  // Memory by bare pointer. The default goes through raw_deleter and throws InvalidArgument when
  // there is none; allocators that can find a block by its address override both.
  virtual void* raw_allocate(std::size_t size_bytes);
  virtual void raw_deallocate(void* data);

  // Copies bytes between two blocks of this allocator, which do not overlap. On a device in the
  // order of the thread's current stream.
  virtual void copy_data(void* dest, const void* src, std::size_t size_bytes) const = 0;

  // What with_scope keeps with the allocator, made at the first call. Thread-safe.
  AllocatorAttachment& attachment(std::unique_ptr<AllocatorAttachment> (*make)(Allocator&));

 protected:
  // For the destructor of an adaptor.
  void end_attachment(DataPtr (*unwrap)(DataPtr));
  // memcpy, for memory that the host can reach.
  void default_copy_data(void* dest, const void* src, std::size_t size_bytes) const;

 private:
  std::atomic<AllocatorAttachment*> attachment_{nullptr};  // owned
};

// Throws InvalidArgument for a size above kMaxRequestBytes, which no allocator serves.
[[noreturn]] void refuse_size(std::size_t size_bytes);
inline void check_size(std::size_t size_bytes) {
  if (size_bytes > kMaxRequestBytes) [[unlikely]] refuse_size(size_bytes);
}

// Throws OutOfMemory in the name of `who`, which knows no more of the memory there.
[[noreturn]] void refuse_memory(const char* who, Device device, std::size_t size_bytes,
                                std::string advice);

// What an upstream gave to an allocator that cuts it into blocks. Throws OutOfMemory, in the name
// of `who`, for null, which an upstream may return instead of throwing.
DataPtr require_chunk(DataPtr memory, std::size_t size_bytes, const char* who);

}  // namespace tenon
