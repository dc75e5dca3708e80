// A handle on a StorageImpl. Threads: as IntrusivePtr for the handle; the bytes are the program's
// to order. O(1), except resize_ and bytes that come at the first access. Throws OutOfMemory where
// memory is made.
#pragma once

#include <utility>

#include "tenon/tensor/storage_impl.h"

namespace tenon {

// Shares one StorageImpl; copying is one atomic increment. A default-constructed one holds nothing
// (valid() is false) and must only be asked that.
class Storage {
 public:
  Storage() = default;
  Storage(IntrusivePtr<StorageImpl> impl) : impl_(std::move(impl)) {}
  // `size_bytes` of fresh memory from `allocator`; resizable.
  Storage(std::size_t size_bytes, Allocator* allocator)
      : impl_(make_intrusive<StorageImpl>(
            StorageImpl::UseByteSize{}, static_cast<std::int64_t>(size_bytes), allocator, true)) {}
  // Over memory that exists; it goes with its deleter.
  Storage(std::size_t size_bytes, DataPtr data)
      : impl_(make_intrusive<StorageImpl>(StorageImpl::UseByteSize{},
                                          static_cast<std::int64_t>(size_bytes), std::move(data),
                                          nullptr, false)) {}

  // Whether it holds anything. Requires for all else: it does.
  bool valid() const { return impl_.defined(); }
  // The bytes, for reading, for writing, and with their owner. Lazy ones come now.
  const void* data() const { return impl_->data(); }
  void* mutable_data() const { return impl_->mutable_data(); }
  const DataPtr& data_ptr() const { return impl_->data_ptr(); }

  // How many bytes; as an expression, where that is symbolic.
  std::size_t nbytes() const { return impl_->nbytes(); }
  const SymInt& sym_nbytes() const { return impl_->sym_nbytes(); }
  // The number alone: memory stays as it is.
  void set_nbytes(std::size_t size_bytes) const {
    impl_->set_nbytes(static_cast<std::int64_t>(size_bytes));
  }
  // Whether there is an allocator to grow by, where the bytes are, and the allocator or null.
  bool resizable() const { return impl_->resizable(); }
  // Another size with the same leading bytes: StorageImpl::resize.
  void resize_(std::size_t size_bytes) const { impl_->resize(size_bytes); }
  Device device() const { return impl_->device(); }
  Allocator* allocator() const { return impl_->allocator(); }

  // Handles on the StorageImpl.
  std::size_t use_count() const { return impl_.use_count(); }
  bool unique() const { return impl_.unique(); }
  // The same StorageImpl. (A copy-on-write clone is none: writing one leaves the other as it is.)
  bool is_alias_of(const Storage& other) const { return impl_ == other.impl_; }

  // What is shared.
  StorageImpl* impl() const { return impl_.get(); }
  const IntrusivePtr<StorageImpl>& impl_ptr() const { return impl_; }

 private:
  IntrusivePtr<StorageImpl> impl_;
};

}  // namespace tenon
