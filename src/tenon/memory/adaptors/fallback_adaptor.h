// A second allocator for what the first cannot serve.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "tenon/memory/adaptors/adaptor.h"

namespace tenon {

// The observers of `to` see what those of `from` see, while it lives. Throws InvalidArgument when
// the two serve different devices.
class ObserverRelay final : private Observer {
 public:
  ObserverRelay(DeviceAllocator& from, DeviceAllocator& to);
  ~ObserverRelay() override;

 private:
  void on_memory_event(const MemoryEventInfo& info) override;

  DeviceAllocator& from_;
  DeviceAllocator& to_;
};
// OutOfMemory of the second, with the bytes of the first too.
[[noreturn]] void throw_with_bytes_of(const DeviceAllocator& first, const OutOfMemory& error);

// Asks the first, and the second when the first throws OutOfMemory. Each block goes back to the one
// it came from. When both fail, the second's error is thrown (on a device with the bytes of both).
// Statistics are the sum of both. Observers of the first see what happens in the second too.
// Thread-safe when both are, without a lock. O(1) beside the two.
template <typename Base>
class FallbackAdaptor final : public Adaptor<Base> {
 public:
  // Throws InvalidArgument when the two serve different devices (as far as that is known).
  FallbackAdaptor(std::type_identity_t<Base>& first, std::type_identity_t<Base>& second)
      : Adaptor<Base>(first), second_(second) {
    if constexpr (kOnDevice) relay_ = std::make_unique<ObserverRelay>(second, first);
  }

  // The allocator that is asked when the first has no memory.
  Base& second() const { return second_; }
  // Requests that the first could not serve.
  std::uint64_t fallbacks() const { return fallbacks_.load(std::memory_order_relaxed); }

 protected:
  std::string adaptor_name() const override { return "fallback"; }
  DataPtr serve(std::size_t size_bytes, Stream stream) override {
    try {
      return this->wrap(this->from_upstream(size_bytes, stream), size_bytes, stream);
    } catch (const OutOfMemory&) {
      fallbacks_.fetch_add(1, std::memory_order_relaxed);
    }
    return this->wrap(from_second(size_bytes, stream), size_bytes, stream,
                      std::make_unique<FromSecond>());
  }
  std::vector<Base*> upstreams() const override { return {&this->upstream_, &second_}; }
  Base& home_of(const AdaptorBlock& block) const override {
    return dynamic_cast<const FromSecond*>(&block) != nullptr ? second_ : this->upstream_;
  }

 private:
  static constexpr bool kOnDevice = AdaptorCore<Base>::kOnDevice;
  struct FromSecond : AdaptorBlock {};

  DataPtr from_second(std::size_t size_bytes, Stream stream) {
    if constexpr (!kOnDevice) {
      return second_.allocate(size_bytes);
    } else {
      try {
        return second_.allocate_on(size_bytes, stream);
      } catch (const OutOfMemory& error) {
        throw_with_bytes_of(this->upstream_, error);
      }
    }
  }

  Base& second_;
  std::unique_ptr<ObserverRelay> relay_;  // on a device
  std::atomic<std::uint64_t> fallbacks_{0};
};

// Over a DeviceAllocator it is one: Note [Adaptors] in adaptor.h.
template <typename A, typename B>
FallbackAdaptor(A&, B&)
    -> FallbackAdaptor<std::conditional_t<std::derived_from<A, DeviceAllocator> &&
                                              std::derived_from<B, DeviceAllocator>,
                                          DeviceAllocator, Allocator>>;

}  // namespace tenon
