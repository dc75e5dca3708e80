#include "tenon/memory/adaptors/limit_adaptor.h"

namespace tenon {

template <typename Base>
DataPtr LimitAdaptor<Base>::serve(std::size_t size_bytes, Stream stream) {
  if (!this->reserve(size_bytes, limit_bytes()) &&
      !(reclaim_idle(this->own_shortage()) && this->reserve(size_bytes, limit_bytes())))
    this->refuse_above(limit_bytes(), size_bytes, stream,
                       "free blocks, or raise the adaptor's limit (set_limit)");
  return this->serve_reserved(size_bytes, stream,
                              [&] { return this->from_upstream(size_bytes, stream); });
}

template class LimitAdaptor<Allocator>;
template class LimitAdaptor<DeviceAllocator>;

}  // namespace tenon
