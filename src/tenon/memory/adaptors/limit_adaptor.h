// A limit on bytes in use.
#pragma once

#include <atomic>
#include <cstdint>

#include "tenon/memory/adaptors/usage_adaptor.h"

namespace tenon {

// Counts the bytes in use through it, as asked for. A request that would exceed the limit throws
// OutOfMemory and does not reach the upstream. Thread-safe without a lock. O(1) beside it.
template <typename Base>
class LimitAdaptor final : public UsageAdaptor<Base> {
 public:
  LimitAdaptor(std::type_identity_t<Base>& upstream, std::uint64_t limit_bytes)
      : UsageAdaptor<Base>(upstream), limit_bytes_(limit_bytes) {}

  // The limit, in bytes.
  std::uint64_t limit_bytes() const { return limit_bytes_.load(std::memory_order_relaxed); }
  // Below what is in use, nothing more is served until enough has been freed.
  void set_limit(std::uint64_t limit_bytes) {
    limit_bytes_.store(limit_bytes, std::memory_order_relaxed);
  }

 protected:
  std::string adaptor_name() const override { return "limit"; }
  DataPtr serve(std::size_t size_bytes, Stream stream) override {
    if (!this->reserve(size_bytes, limit_bytes()) &&
        !(reclaim_idle(this->own_shortage()) && this->reserve(size_bytes, limit_bytes())))
      this->refuse_above(limit_bytes(), size_bytes, stream,
                         "free blocks, or raise the adaptor's limit (set_limit)");
    return this->serve_reserved(size_bytes, stream,
                                [&] { return this->from_upstream(size_bytes, stream); });
  }

 private:
  std::atomic<std::uint64_t> limit_bytes_;
};

// Over a DeviceAllocator it is one: Note [Adaptors] in adaptor.h.
template <typename A>
LimitAdaptor(A&, std::uint64_t) -> LimitAdaptor<AdaptorBase<A>>;

}  // namespace tenon
