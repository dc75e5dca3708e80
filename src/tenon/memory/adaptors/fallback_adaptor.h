// A second allocator for what the first cannot serve.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "tenon/memory/adaptors/adaptor.h"

namespace tenon {

// Asks the first, and the second when the first throws OutOfMemory. Each block goes back to the one
// it came from. When both fail, the second's error is thrown (on a device with the bytes of both).
// Statistics are the sum of both. Observers of the first see what happens in the second too.
// Thread-safe when both are, without a lock. O(1) beside the two.
template <typename Base>
class FallbackAdaptor final : public Adaptor<Base>, private Observer {
 public:
  // Throws InvalidArgument when the two serve different devices (as far as that is known).
  FallbackAdaptor(std::type_identity_t<Base>& first, std::type_identity_t<Base>& second)
      : Adaptor<Base>(first), second_(second) {
    if constexpr (kOnDevice) {
      if (first.device() != second.device())
        raise<InvalidArgument>("a fallback serves one device, not {} and {}",
                               to_string(first.device()), to_string(second.device()));
      // Two adaptors may share one upstream, and so its observers.
      if (&first.observers() == &second.observers()) return;
      second.observers().share_lock(first.observers());
      second.observers().add(this);
    }
  }
  ~FallbackAdaptor() override {
    if constexpr (kOnDevice) second_.observers().remove(this);
  }

  // Requests that the first could not serve.
  std::uint64_t fallbacks() const { return fallbacks_.load(std::memory_order_relaxed); }

 protected:
  std::string adaptor_name() const override { return "fallback"; }
  DataPtr serve(std::size_t size_bytes, Stream stream) override {
    try {
      return this->wrap(this->from_upstream(size_bytes, stream), size_bytes, stream);
    } catch (const OutOfMemory&) {
      ++fallbacks_;
    }
    auto block = std::make_unique<FromSecond>();
    if constexpr (!kOnDevice) {
      return this->wrap(second_.allocate(size_bytes), size_bytes, stream, std::move(block));
    } else {
      try {
        return this->wrap(second_.allocate_on(size_bytes, stream), size_bytes, stream,
                          std::move(block));
      } catch (const OutOfMemory& error) {
        const AllocatorStats of_first = this->upstream_.stats();
        OutOfMemoryDetails details = error.details();
        details.allocated_bytes += static_cast<std::uint64_t>(of_first.allocated_bytes[0].current);
        details.reserved_bytes += static_cast<std::uint64_t>(of_first.reserved_bytes[0].current);
        throw OutOfMemory(std::move(details));
      }
    }
  }
  std::vector<Base*> upstreams() const override { return {&this->upstream_, &second_}; }
  Base& home_of(const AdaptorBlock& block) const override {
    return dynamic_cast<const FromSecond*>(&block) != nullptr ? second_ : this->upstream_;
  }

 private:
  static constexpr bool kOnDevice = AdaptorCore<Base>::kOnDevice;
  struct FromSecond : AdaptorBlock {};

  void on_memory_event(const MemoryEventInfo& info) override {
    if constexpr (kOnDevice)
      this->observers().report(info.event, info.data, info.size_bytes, info.stream);
  }

  Base& second_;
  std::atomic<std::uint64_t> fallbacks_{0};
};

// Over a DeviceAllocator it is one: Note [Adaptors] in adaptor.h.
template <typename A, typename B>
FallbackAdaptor(A&, B&)
    -> FallbackAdaptor<std::conditional_t<std::derived_from<A, DeviceAllocator> &&
                                              std::derived_from<B, DeviceAllocator>,
                                          DeviceAllocator, Allocator>>;

}  // namespace tenon
