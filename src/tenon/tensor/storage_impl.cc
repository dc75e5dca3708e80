#include "tenon/tensor/storage_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>

#include "tenon/base/error.h"
#include "tenon/base/hash.h"
#include "tenon/memory/registry.h"
#include "tenon/tensor/copy_on_write.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/host_access.h"
#include "tenon/tensor/meta_memory.h"

namespace tenon {
namespace {

// First accesses are rare, so storages share a few locks instead of holding one each.
std::mutex& first_access_lock(const StorageImpl* storage) {
  static std::array<std::mutex, 16> locks;
  return locks[mix64(reinterpret_cast<std::uintptr_t>(storage)) % locks.size()];
}


void check_size(const SymInt& size_bytes) {
  if (size_bytes.hint() < 0)
    throw InvalidArgument(fmt::format("storage: {} bytes is no size", to_string(size_bytes)));
}

// The context of a block whose storage was told that it is smaller: set_nbytes may grow it again.
struct SizedBlock {
  DataPtr block;
  std::size_t size_bytes;

  static void release(void* context) { delete static_cast<SizedBlock*>(context); }
};

}  // namespace

bool detail::is_partly_used(const DataPtr& data) {
  return data.cast_context<SizedBlock>(&SizedBlock::release) != nullptr;
}

static_assert(sizeof(StorageImpl) == 72);

StorageImpl::StorageImpl(UseByteSize, SymInt size_bytes, DataPtr data, Allocator* allocator,
                         bool resizable)
    : data_(std::move(data)),
      size_bytes_(std::move(size_bytes)),
      allocator_(allocator),
      flags_(resizable ? kResizable : 0) {
  check_size(size_bytes_);
  state_.store(state_on(data_.device()), std::memory_order_relaxed);
}

StorageImpl::StorageImpl(UseByteSize, const SymInt& size_bytes, Allocator* allocator,
                         bool resizable)
    : StorageImpl(UseByteSize{}, size_bytes, DataPtr(), allocator, resizable) {
  if (allocator_ == nullptr)
    throw InvalidArgument(
        fmt::format("storage: {} bytes need an allocator to come from", to_string(size_bytes_)));
  data_ = allocator_->allocate(nbytes());
  state_.store(state_on(data_.device()), std::memory_order_relaxed);
  mark_untouched();
}

StorageImpl::StorageImpl(Lazy, std::size_t size_bytes, Device device, Allocator* allocator,
                         bool resizable)
    : data_(device),
      size_bytes_(static_cast<std::int64_t>(size_bytes)),
      allocator_(allocator),
      flags_(resizable ? kResizable : 0) {
  const bool has_memory = device.type != DeviceType::kMeta && size_bytes > 0;
  state_.store(static_cast<std::uint8_t>((has_memory ? kLazy : 0) | state_on(device)),
               std::memory_order_relaxed);
  mark_untouched();
}

StorageImpl::StorageImpl(WithoutMemory, Device device)
    : data_(device), size_bytes_(0), allocator_(nullptr), flags_(0) {
  state_.store(kLazy | kWithoutMemory, std::memory_order_relaxed);
}

std::uint8_t StorageImpl::state_on(Device device) {
  if (device.type == DeviceType::kCpu || !has_operators(device)) [[likely]]
    return 0;
  return host_reaches(device) ? kOnDevice : kOnDevice | kSeparate;
}

Allocator& StorageImpl::source_of_bytes() const {
  return allocator_ != nullptr ? *allocator_ : *current_allocator(device());
}

void StorageImpl::bring_bytes() const {
  if ((state() & kWithoutMemory) != 0 && resizable())
    throw InvalidArgument("storage: its bytes were given back by resize(0); resize it before its "
                          "tensors are used");
  if (state() & kWithoutMemory)
    throw InvalidArgument("a sparse tensor has no memory of its own; to_dense() makes it strided");
  const std::lock_guard lock(first_access_lock(this));
  if ((state() & kLazy) == 0) return;  // another thread was faster
  data_ = source_of_bytes().allocate(nbytes());
  state_.fetch_and(static_cast<std::uint8_t>(~kLazy), std::memory_order_release);
}

const void* StorageImpl::prepare_read() const {
  if (state() & kLazy) bring_bytes();
  if ((state() & kOnDevice) == 0 || data_ == nullptr) return data_.get();
  if (state() & kSeparate) return detail::address_in_turn(*const_cast<StorageImpl*>(this), false);
  wait_for_device(device(), data_.get());
  return data_.get();
}

void* StorageImpl::prepare_write() {
  own_bytes();  // which may queue a copy
  if ((state() & kOnDevice) == 0 || data_ == nullptr) return data_.get();
  if (state() & kSeparate) return detail::address_in_turn(*this, true);
  wait_for_device(device(), data_.get());
  return data_.get();
}

void StorageImpl::prepare_queued_read() const {
  if (state() & kLazy) bring_bytes();
  if (state() & kSeparate) detail::bring_to_device(*const_cast<StorageImpl*>(this), false);
}

void StorageImpl::prepare_queued_write() {
  own_bytes();
  if ((state() & kSeparate) == 0) return;
  detail::bring_to_device(*this, true);
  state_.fetch_and(static_cast<std::uint8_t>(~kUntouched), std::memory_order_release);
}

void StorageImpl::own_bytes() {
  if (state() & kLazy) bring_bytes();
  if ((state() & kCopyOnWrite) == 0) return;
  const std::lock_guard lock(first_access_lock(this));
  if ((state() & kCopyOnWrite) == 0) return;
  detail::own_bytes(data_, nbytes(), source_of_bytes());
  state_.fetch_and(static_cast<std::uint8_t>(~kCopyOnWrite), std::memory_order_release);
}

DataPtr StorageImpl::set_data_ptr(DataPtr data) {
  DataPtr old = std::move(data_);
  data_ = std::move(data);
  flags_ |= kUnknownSize;
  state_.store(state_on(data_.device()), std::memory_order_release);
  return old;
}

void StorageImpl::set_nbytes(SymInt size_bytes) {
  check_size(size_bytes);
  const bool is_given = data_ != nullptr || (state() & kWithoutMemory) != 0;
  if (is_given && (flags_ & kUnknownSize) == 0) {
    const auto* sized = data_.cast_context<SizedBlock>(&SizedBlock::release);
    const std::size_t whole = sized != nullptr     ? sized->size_bytes
                              : is_copy_on_write() ? detail::shared_size(data_)
                                                   : nbytes();
    const auto wanted = static_cast<std::size_t>(size_bytes.hint());
    if (wanted > whole)
      throw InvalidArgument(
          fmt::format("set_nbytes: {} bytes of a storage that has {}; resize() brings more memory",
                      to_string(size_bytes), whole));
    if (wanted < whole && sized == nullptr && !is_copy_on_write()) {
      void* const data = data_.get();
      const Device on = device();
      auto block = std::make_unique<SizedBlock>(SizedBlock{std::move(data_), whole});
      data_ = DataPtr(data, block.release(), &SizedBlock::release, on);
    }
  }
  flags_ &= kResizable;
  size_bytes_ = std::move(size_bytes);
  detail::meta_block_resized(data_, size_bytes_);
}

void StorageImpl::resize(std::size_t size_bytes) {
  if (!resizable())
    throw InvalidArgument(
        fmt::format("storage: it has {} bytes and is not resizable to {}; clone() the tensor first",
                    nbytes(), size_bytes));
  const bool emptied = (state() & kWithoutMemory) != 0;
  if ((has_bytes() || emptied) && device_type() != DeviceType::kMeta) {
    const bool empties = size_bytes == 0 && (emptied || nbytes() > 0);
    Allocator& allocator = source_of_bytes();
    DataPtr larger = allocator.allocate(size_bytes);
    const std::size_t kept = std::min(nbytes(), size_bytes);
    if (kept > 0 && data_ != nullptr) allocator.copy_data(larger.get(), data_in_stream(), kept);
    static_cast<void>(set_data_ptr(std::move(larger)));
    flags_ &= kResizable;
    if (empties) state_.fetch_or(kLazy | kWithoutMemory, std::memory_order_release);
  }
  size_bytes_ = SymInt(static_cast<std::int64_t>(size_bytes));
  detail::meta_block_resized(data_, size_bytes_);
}

void StorageImpl::reset() {
  static_cast<void>(set_data_ptr(DataPtr(device())));
  size_bytes_ = SymInt(0);
}

void StorageImpl::release_resources() { data_.clear(); }

}  // namespace tenon
