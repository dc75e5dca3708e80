// Long work that can be asked to stop. O(1).
#pragma once

#include <atomic>

#include "tenon/base/fast_thread_local.h"

namespace tenon {

// What work that was asked to stop throws. Not a std::exception, so that code which turns failures
// into results passes it on.
struct Interrupted {};

namespace detail {
TENON_FAST_THREAD_LOCAL inline constinit thread_local const std::atomic<bool>* stop_request =
    nullptr;
}  // namespace detail

// The request that the calling thread's work obeys; null: none. Code that starts threads for its
// work hands it on to them.
inline const std::atomic<bool>* current_stop_request() { return detail::stop_request; }

// Within the scope, the calling thread's work stops once `*stop` is true. Null: it does not.
class StopScope {
 public:
  explicit StopScope(const std::atomic<bool>* stop) : outer_(detail::stop_request) {
    detail::stop_request = stop;
  }
  ~StopScope() { detail::stop_request = outer_; }
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;

 private:
  const std::atomic<bool>* const outer_;
};

// Throws Interrupted when the thread's work was asked to stop. Two loads: long loops call it every
// few hundred rounds, where an exception leaves everything whole.
inline void stop_if_asked() {
  const std::atomic<bool>* stop = detail::stop_request;
  if (stop != nullptr && stop->load(std::memory_order_relaxed)) [[unlikely]]
    throw Interrupted();
}

}  // namespace tenon
