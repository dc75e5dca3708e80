#include "tenon/tensor/copy_on_write.h"

#include <atomic>
#include <memory>

#include "tenon/base/check.h"
#include "tenon/tensor/kernels/vulkan/capturing.h"

namespace tenon {
namespace {

// Bytes that several storages hold. Each one's DataPtr has this as its context.
struct SharedBytes {
  DataPtr owner;
  std::size_t size_bytes = 0;
  std::atomic<std::uint32_t> holders{1};

  static void release(void* context) {
    auto* shared = static_cast<SharedBytes*>(context);
    if (shared->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete shared;
  }
};

}  // namespace

IntrusivePtr<StorageImpl> copy_on_write_clone(StorageImpl& source) {
  if (!source.has_bytes())
    return make_intrusive<StorageImpl>(StorageImpl::Lazy{}, source.nbytes(), source.device(),
                                       source.allocator(), source.resizable());
  const Device device = source.device();
  if (source.data_ == nullptr)
    return make_intrusive<StorageImpl>(StorageImpl::UseByteSize{}, source.sym_nbytes(),
                                       DataPtr(device), source.allocator(), source.resizable());
  void* data = const_cast<void*>(source.data_in_stream());
  if (detail::is_partly_used(source.data_)) {
    vulkan::refuse_other_memory(device, data, source.nbytes());
    return make_intrusive<StorageImpl>(StorageImpl::UseByteSize{}, source.sym_nbytes(),
                                       source.source_of_bytes().clone(data, source.nbytes()),
                                       source.allocator(), source.resizable());
  }
  if (!source.is_copy_on_write()) {
    auto shared = std::make_unique<SharedBytes>();
    shared->owner = std::move(source.data_);
    shared->size_bytes = source.nbytes();
    source.data_ = DataPtr(data, shared.release(), &SharedBytes::release, device);
    source.state_.fetch_or(StorageImpl::kCopyOnWrite, std::memory_order_release);
  }
  auto* shared = static_cast<SharedBytes*>(source.data_.get_context());
  shared->holders.fetch_add(1, std::memory_order_relaxed);
  auto clone = make_intrusive<StorageImpl>(StorageImpl::UseByteSize{}, source.sym_nbytes(),
                                           DataPtr(data, shared, &SharedBytes::release, device),
                                           source.allocator(), source.resizable());
  clone->state_.fetch_or(StorageImpl::kCopyOnWrite, std::memory_order_release);
  return clone;
}

std::size_t detail::shared_size(const DataPtr& data) {
  TENON_CHECK(data.get_deleter() == &SharedBytes::release, "the bytes are not shared");
  return static_cast<const SharedBytes*>(data.get_context())->size_bytes;
}

void detail::own_bytes(DataPtr& data, std::size_t size_bytes, Allocator& allocator) {
  TENON_CHECK(data.get_deleter() == &SharedBytes::release, "the bytes are not shared");
  auto* shared = static_cast<SharedBytes*>(data.get_context());
  if (shared->holders.load(std::memory_order_acquire) == 1) {
    data = DataPtr(std::move(shared->owner));  // dropping the old context deletes `shared`
    return;
  }
  vulkan::refuse_other_memory(data.device(), data.get(), size_bytes);
  data = allocator.clone(data.get(), size_bytes);
}

}  // namespace tenon
