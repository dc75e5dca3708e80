#include "tenon/memory/adaptors/thread_safe_adaptor.h"

namespace tenon {

template <typename Base>
DataPtr ThreadSafeAdaptor<Base>::serve(std::size_t size_bytes, Stream stream) {
  return this->wrap(this->from_upstream(size_bytes, stream), size_bytes, stream);
}

template <typename Base>
std::unique_lock<std::recursive_mutex> ThreadSafeAdaptor<Base>::enter() const {
  return std::unique_lock(mutex_);
}

template class ThreadSafeAdaptor<Allocator>;
template class ThreadSafeAdaptor<DeviceAllocator>;

}  // namespace tenon
