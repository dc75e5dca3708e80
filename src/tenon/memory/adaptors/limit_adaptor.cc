#include "tenon/memory/adaptors/limit_adaptor.h"

#include <algorithm>

namespace tenon {

template <typename Base>
bool LimitAdaptor<Base>::reserve(std::uint64_t size_bytes) {
  std::uint64_t used = used_bytes();
  do {
    const std::uint64_t limit = limit_bytes();
    if (used > limit || size_bytes > limit - used) return false;
  } while (!used_bytes_.compare_exchange_weak(used, used + size_bytes, std::memory_order_relaxed));
  return true;
}

template <typename Base>
DataPtr LimitAdaptor<Base>::serve(std::size_t size_bytes, Stream stream) {
  if (!reserve(size_bytes) && !(reclaim_idle(this->place(), this) && reserve(size_bytes))) {
    OutOfMemoryDetails details;
    details.allocated_bytes = details.reserved_bytes = used_bytes();
    details.limit_bytes = limit_bytes();
    details.largest_free_bytes =
        details.limit_bytes - std::min(details.limit_bytes, details.allocated_bytes);
    details.idle = idle_holders(this->place(), this);
    details.advice = "free blocks, or raise the adaptor's limit (set_limit)";
    this->refuse(size_bytes, stream, std::move(details));
  }
  try {
    DataPtr data = this->wrap(this->from_upstream(size_bytes, stream), size_bytes, stream);
    if (data == nullptr) used_bytes_.fetch_sub(size_bytes, std::memory_order_relaxed);
    return data;
  } catch (...) {
    used_bytes_.fetch_sub(size_bytes, std::memory_order_relaxed);
    throw;
  }
}

template <typename Base>
void LimitAdaptor<Base>::take_back(std::unique_ptr<Block> block) {
  used_bytes_.fetch_sub(block->size_bytes, std::memory_order_relaxed);
  Adaptor<Base>::take_back(std::move(block));
}

template class LimitAdaptor<Allocator>;
template class LimitAdaptor<DeviceAllocator>;

}  // namespace tenon
