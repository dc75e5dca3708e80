#include "tenon/memory/adaptors/fallback_adaptor.h"

namespace tenon {
namespace {

class Relay : public Observer {
 public:
  explicit Relay(DeviceAllocator& to) : to_(to) {}
  void on_memory_event(const MemoryEventInfo& info) override {
    to_.observers().report(info.event, info.data, info.size_bytes, info.stream);
  }

 private:
  DeviceAllocator& to_;
};

}  // namespace

template <typename Base>
FallbackAdaptor<Base>::FallbackAdaptor(std::type_identity_t<Base>& first,
                                       std::type_identity_t<Base>& second)
    : Adaptor<Base>(first), second_(second) {
  if constexpr (AdaptorCore<Base>::kOnDevice) {
    if (first.device() != second.device())
      raise<InvalidArgument>("a fallback serves one device, not {} and {}",
                             to_string(first.device()), to_string(second.device()));
    // Two adaptors may share one upstream, and so its observers.
    if (&first.observers() != &second.observers()) {
      relay_ = std::make_unique<Relay>(first);
      second.observers().share_lock(first.observers());
      second.observers().add(relay_.get());
    }
  }
}

template <typename Base>
FallbackAdaptor<Base>::~FallbackAdaptor() {
  if constexpr (AdaptorCore<Base>::kOnDevice) second_.observers().remove(relay_.get());
}

template <typename Base>
DataPtr FallbackAdaptor<Base>::serve(std::size_t size_bytes, Stream stream) {
  try {
    return this->wrap(this->from_upstream(size_bytes, stream), size_bytes, stream);
  } catch (const OutOfMemory&) {
    fallbacks_.fetch_add(1, std::memory_order_relaxed);
  }
  return this->wrap(from_second(size_bytes, stream), size_bytes, stream,
                    std::make_unique<FromSecond>());
}

template <typename Base>
DataPtr FallbackAdaptor<Base>::from_second(std::size_t size_bytes, Stream stream) {
  if constexpr (AdaptorCore<Base>::kOnDevice) {
    try {
      return second_.allocate_on(size_bytes, stream);
    } catch (const OutOfMemory& error) {
      const AllocatorStats first = this->upstream_.stats();
      OutOfMemoryDetails details = error.details();
      details.allocated_bytes += static_cast<std::uint64_t>(first.allocated_bytes[0].current);
      details.reserved_bytes += static_cast<std::uint64_t>(first.reserved_bytes[0].current);
      throw OutOfMemory(std::move(details));
    }
  } else {
    return second_.allocate(size_bytes);
  }
}

template <typename Base>
Base& FallbackAdaptor<Base>::home_of(const Block& block) const {
  return dynamic_cast<const FromSecond*>(&block) != nullptr ? second_ : this->upstream_;
}

template class FallbackAdaptor<Allocator>;
template class FallbackAdaptor<DeviceAllocator>;

}  // namespace tenon
