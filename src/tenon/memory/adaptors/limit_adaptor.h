// A limit on bytes in use.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "tenon/memory/adaptors/adaptor.h"

namespace tenon {

// What adaptors that count bytes in use, as asked for, have in common. Thread-safe without a lock.
template <typename Base>
class UsageAdaptor : public Adaptor<Base> {
 public:
  using Adaptor<Base>::Adaptor;

  // Bytes in use, as asked for.
  std::uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }

 protected:
  // Counts these bytes as in use, unless that would bring the sum above the limit.
  bool reserve(std::uint64_t size_bytes, std::uint64_t limit_bytes) {
    std::uint64_t used = used_bytes();
    do {
      if (used > limit_bytes || size_bytes > limit_bytes - used) return false;
    } while (!used_bytes_.compare_exchange_weak(used, used + size_bytes,
                                                std::memory_order_relaxed));
    return true;
  }
  // Hands out the block that `ask` returns. Its bytes were reserved, and are given back where there
  // is no block.
  template <typename Ask>
  DataPtr serve_reserved(std::size_t size_bytes, Stream stream, Ask&& ask) {
    try {
      DataPtr data = this->wrap(ask(), size_bytes, stream);
      if (data == nullptr) used_bytes_ -= size_bytes;
      return data;
    } catch (...) {
      used_bytes_ -= size_bytes;
      throw;
    }
  }
  // Refuses a request that a limit on the bytes in use forbids.
  [[noreturn]] void refuse_above(std::uint64_t limit_bytes, std::size_t size_bytes, Stream stream,
                                 std::string advice) {
    OutOfMemoryDetails details;
    details.allocated_bytes = details.reserved_bytes = used_bytes();
    details.limit_bytes = limit_bytes;
    details.largest_free_bytes = limit_bytes - std::min(limit_bytes, details.allocated_bytes);
    details.idle = idle_holders(this->own_shortage());
    details.advice = std::move(advice);
    this->refuse(size_bytes, stream, std::move(details));
  }
  void take_back(std::unique_ptr<AdaptorBlock> block) override {
    used_bytes_ -= block->size_bytes;
    Adaptor<Base>::take_back(std::move(block));
  }

 private:
  std::atomic<std::uint64_t> used_bytes_{0};
};

// A request that would exceed the limit throws OutOfMemory and does not reach the upstream.
// Thread-safe without a lock. O(1) beside the upstream.
template <typename Base>
class LimitAdaptor final : public UsageAdaptor<Base> {
 public:
  LimitAdaptor(std::type_identity_t<Base>& upstream, std::uint64_t limit_bytes)
      : UsageAdaptor<Base>(upstream), limit_bytes_(limit_bytes) {}

  // The limit, in bytes. Below what is in use, nothing more is served until enough has been freed.
  std::uint64_t limit_bytes() const { return limit_bytes_.load(std::memory_order_relaxed); }
  void set_limit(std::uint64_t limit_bytes) { limit_bytes_ = limit_bytes; }

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
