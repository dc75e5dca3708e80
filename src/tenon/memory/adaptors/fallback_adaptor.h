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
class FallbackAdaptor final : public Adaptor<Base> {
 public:
  // Throws InvalidArgument when the two serve different devices (as far as that is known).
  FallbackAdaptor(std::type_identity_t<Base>& first, std::type_identity_t<Base>& second);
  ~FallbackAdaptor() override;

  // The allocator that is asked when the first has no memory.
  Base& second() const { return second_; }
  // Requests that the first could not serve.
  std::uint64_t fallbacks() const { return fallbacks_.load(std::memory_order_relaxed); }

 protected:
  using typename AdaptorCore<Base>::Block;
  std::string adaptor_name() const override { return "fallback"; }
  DataPtr serve(std::size_t size_bytes, Stream stream) override;
  std::vector<Base*> upstreams() const override { return {&this->upstream_, &second_}; }
  Base& home_of(const Block& block) const override;

 private:
  struct FromSecond : Block {};

  DataPtr from_second(std::size_t size_bytes, Stream stream);

  Base& second_;
  std::unique_ptr<Observer> relay_;  // from the second's observers to the first's
  std::atomic<std::uint64_t> fallbacks_{0};
};

// Over a DeviceAllocator it is one: Note [Adaptors] in adaptor.h.
template <typename A, typename B>
FallbackAdaptor(A&, B&)
    -> FallbackAdaptor<std::conditional_t<std::derived_from<A, DeviceAllocator> &&
                                              std::derived_from<B, DeviceAllocator>,
                                          DeviceAllocator, Allocator>>;

extern template class FallbackAdaptor<Allocator>;
extern template class FallbackAdaptor<DeviceAllocator>;

}  // namespace tenon
