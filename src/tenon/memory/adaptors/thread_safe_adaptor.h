// One thread at a time. Thread-safe: one recursive mutex, O(1) beside the upstream. Failure: the
// upstream's.
#pragma once

#include <mutex>

#include "tenon/memory/adaptors/adaptor.h"

namespace tenon {

// A mutex around an allocator that knows no threads: requests, frees on whatever thread, copies and
// questions wait for one another. The upstream must be reached through this adaptor only.
// Observers of the upstream run under the mutex; they may allocate.
template <typename Base>
class ThreadSafeAdaptor final : public Adaptor<Base> {
 public:
  explicit ThreadSafeAdaptor(std::type_identity_t<Base>& upstream) : Adaptor<Base>(upstream) {}

 protected:
  std::string adaptor_name() const override { return "thread_safe"; }
  DataPtr serve(std::size_t size_bytes, Stream stream) override {
    return this->wrap(this->from_upstream(size_bytes, stream), size_bytes, stream);
  }
  std::unique_lock<std::recursive_mutex> enter() const override {
    return std::unique_lock(mutex_);
  }

 private:
  mutable std::recursive_mutex mutex_;
};

// Over a DeviceAllocator it is one: Note [Adaptors] in adaptor.h.
template <typename A>
ThreadSafeAdaptor(A&) -> ThreadSafeAdaptor<AdaptorBase<A>>;

}  // namespace tenon
