// A lock for short critical sections that are almost never contended.
#pragma once

#include <atomic>

namespace tenon {

// What a thread does between two looks at a flag that another thread will change: it looks again at
// first, then yields, and from some microseconds on sleeps, up to a millisecond at a time. So a
// thread that waits long uses no processor.
class Backoff {
 public:
  void wait() {
    if (++tries_ > kLooks) wait_slowly();
  }

 private:
  static constexpr int kLooks = 64;
  void wait_slowly();

  int tries_ = 0;
};

// One exchange to take, one store to release: about half of what a std::mutex pair costs. Not to be
// held across a system call, a sort or a callback. Satisfies Lockable.
class SpinLock {
 public:
  void lock() {
    if (try_lock()) [[likely]] return;
    lock_slowly();
  }
  bool try_lock() { return !locked_.exchange(true, std::memory_order_acquire); }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  void lock_slowly();

  std::atomic<bool> locked_{false};
};

}  // namespace tenon
