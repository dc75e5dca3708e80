// A limit on bytes in use.
#pragma once

#include <atomic>
#include <cstdint>

#include "tenon/memory/adaptors/adaptor.h"

namespace tenon {

// Requests that would bring the bytes in use through this adaptor (as asked for) above the limit
// throw OutOfMemory before the upstream hears of them. Frees give back. Thread-safe without a lock.
template <typename Base>
class LimitAdaptor final : public Adaptor<Base> {
 public:
  LimitAdaptor(std::type_identity_t<Base>& upstream, std::uint64_t limit_bytes)
      : Adaptor<Base>(upstream), limit_bytes_(limit_bytes) {}

  // The limit, in bytes.
  std::uint64_t limit_bytes() const { return limit_bytes_.load(std::memory_order_relaxed); }
  // Below what is in use, nothing more is served until enough has been freed.
  void set_limit(std::uint64_t limit_bytes) {
    limit_bytes_.store(limit_bytes, std::memory_order_relaxed);
  }
  // Bytes in use, as asked for.
  std::uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }

 protected:
  using typename AdaptorCore<Base>::Block;
  std::string adaptor_name() const override { return "limit"; }
  DataPtr serve(std::size_t size_bytes, Stream stream) override;
  void take_back(std::unique_ptr<Block> block) override;

 private:
  bool reserve(std::uint64_t size_bytes);

  std::atomic<std::uint64_t> limit_bytes_;
  std::atomic<std::uint64_t> used_bytes_{0};
};

// Over a DeviceAllocator it is one: Note [Adaptors] in adaptor.h.
template <typename A>
LimitAdaptor(A&, std::uint64_t) -> LimitAdaptor<AdaptorBase<A>>;

extern template class LimitAdaptor<Allocator>;
extern template class LimitAdaptor<DeviceAllocator>;

}  // namespace tenon
