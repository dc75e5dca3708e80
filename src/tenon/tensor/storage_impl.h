// The bytes of tensors, shared by reference counting.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

#include "tenon/base/block_cache.h"
#include "tenon/base/intrusive_ptr.h"
#include "tenon/memory/allocator.h"
#include "tenon/memory/data_ptr.h"
#include "tenon/tensor/sym_int.h"

namespace tenon {

namespace detail {
class HostCopies;
}

// One block of memory with its size, its allocator and the version counter of the tensors on it
// (Note [Version counter sharing] in version.h).
//
// The bytes may be *lazy* (they come from the allocator at the first access; until then the storage
// costs 72 bytes) or *copy-on-write* (shared with clones until mutable data are asked for;
// copy_on_write.h). Both are invisible but for `has_bytes` and `is_copy_on_write`.
//
// A sparse tensor's storage is *without memory*: asking for data throws.
//
// On the meta device there is a size and never any memory; the size may be symbolic.
//
// Threads: counts and version are atomic; reading data from many threads is safe, lazy and
// copy-on-write storage included. What changes the storage itself (set_nbytes, reset, resize,
// set_data_ptr, making a clone) needs the storage to itself, as writing its bytes does.
//
// Failure: OutOfMemory from the allocator, at construction or at the first access of lazy bytes.
class StorageImpl final : public IntrusiveTarget {
 public:
  struct UseByteSize {};
  using use_byte_size_t = UseByteSize;  // as c10 spells it
  struct Lazy {};
  struct WithoutMemory {};

  // Over memory that exists. Without an allocator, whichever is current then serves when the
  // storage is resized or a shared one written: right for memory from an allocator that may end
  // before the storage does, a scope's arena.
  StorageImpl(UseByteSize, SymInt size_bytes, DataPtr data, Allocator* allocator, bool resizable);
  // Over fresh memory from `allocator`.
  StorageImpl(UseByteSize, const SymInt& size_bytes, Allocator* allocator, bool resizable);
  // Bytes come at the first access: from `allocator`, or if it is null from the one that is then
  // current for the device.
  StorageImpl(Lazy, std::size_t size_bytes, Device device, Allocator* allocator, bool resizable);

  // No bytes, and none to be had: data() and its like throw InvalidArgument.
  StorageImpl(WithoutMemory, Device device);

  // Reading. Null for no bytes.
  const void* data() const {
    if (state() & (kLazy | kOnDevice)) [[unlikely]]
      return prepare_read();
    return data_.get();
  }
  // Writing: a copy-on-write storage gets bytes of its own first.
  void* mutable_data() {
    if (state() != 0) [[unlikely]]
      return prepare_write();
    return data_.get();
  }
  // For work that is queued on the storage's device: as data() or mutable_data(), without a wait
  // (Note [Host access] in host_access.h).
  const void* data_in_stream() const {
    if (state() & (kLazy | kSeparate)) [[unlikely]]
      prepare_queued_read();
    return data_.get();
  }
  void* mutable_data_in_stream() {
    if (state() & (kLazy | kCopyOnWrite | kSeparate)) [[unlikely]]
      prepare_queued_write();
    return data_.get();
  }
  // Says that the bytes have no value yet, so that the host need not read them from a device.
  void mark_untouched() {
    if (state() & kSeparate) state_.fetch_or(kUntouched, std::memory_order_relaxed);
  }
  const DataPtr& data_ptr() const {
    static_cast<void>(data());
    return data_;
  }
  DataPtr& mutable_data_ptr() {
    static_cast<void>(mutable_data());
    return data_;
  }
  // Puts other memory in its place and gives the old one back. The size stays: set_nbytes.
  DataPtr set_data_ptr(DataPtr data);

  // With every symbol at its hint.
  std::size_t nbytes() const { return static_cast<std::size_t>(size_bytes_.hint()); }
  const SymInt& sym_nbytes() const { return size_bytes_; }
  // Says how many bytes there are; moves nothing. Throws InvalidArgument when negative, and for
  // more bytes than the memory is known to have: resize() brings more. After set_data_ptr only its
  // caller knows; then the first call says it.
  void set_nbytes(SymInt size_bytes);
  // Another size with the same leading bytes, in fresh memory from `allocator()`, or from the
  // current allocator if there is none. Throws InvalidArgument unless resizable.
  void resize(std::size_t size_bytes);

  bool resizable() const { return (flags_ & kResizable) != 0; }
  // Null: whichever is current. So it is for memory from a guarded allocator, which may have ended.
  Allocator* allocator() const { return allocator_; }
  Device device() const { return data_.device(); }
  DeviceType device_type() const { return data_.device().type; }

  // Lets the bytes go; the size becomes 0.
  void reset();
  // The same when the last strong reference goes while weak ones remain.
  void release_resources() override;

  bool has_bytes() const { return (state() & kLazy) == 0; }
  bool is_copy_on_write() const { return (state() & kCopyOnWrite) != 0; }

  std::atomic<std::uint32_t>& version() const { return version_; }

  static void* operator new(std::size_t) { return BlockCache<kBytes>::allocate(); }
  static void operator delete(void* storage) { BlockCache<kBytes>::deallocate(storage); }

 private:
  friend IntrusivePtr<StorageImpl> copy_on_write_clone(StorageImpl& source);
  friend class detail::HostCopies;

  static constexpr std::size_t kBytes = 72;
  static constexpr std::uint8_t kLazy = 1;
  static constexpr std::uint8_t kCopyOnWrite = 2;
  static constexpr std::uint8_t kWithoutMemory = 4;  // with kLazy, so that one test finds both
  static constexpr std::uint8_t kOnDevice = 8;       // the host waits: Note [Host access]
  static constexpr std::uint8_t kSeparate = 16;      // with kOnDevice: out of the host's reach
  static constexpr std::uint8_t kUntouched = 32;     // with kSeparate: nothing has written it yet

  // Of flags_.
  static constexpr std::uint8_t kResizable = 1;
  static constexpr std::uint8_t kUnknownSize = 2;  // memory was put in, no size said since

  static std::uint8_t state_on(Device device);  // of bytes that are there
  std::uint8_t state() const { return state_.load(std::memory_order_acquire); }
  void bring_bytes() const;
  const void* prepare_read() const;
  void prepare_queued_read() const;
  void own_bytes();
  void* prepare_write();
  void prepare_queued_write();
  Allocator& source_of_bytes() const;

  mutable DataPtr data_;  // lazy bytes come while reading
  SymInt size_bytes_;
  Allocator* allocator_;  // not owned; may be null
  mutable std::atomic<std::uint32_t> version_{0};
  mutable std::atomic<std::uint8_t> state_{0};
  std::uint8_t flags_;
};

}  // namespace tenon
