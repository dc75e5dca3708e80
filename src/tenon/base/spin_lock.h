// A lock for short critical sections that are almost never contended.
#pragma once

#include <atomic>
#include <thread>

namespace tenon {

// One exchange to take, one store to release: about half of what a std::mutex pair costs. After a
// few tries it yields, so that an owner who was descheduled can run. Satisfies Lockable.
class SpinLock {
 public:
  void lock() {
    if (try_lock()) [[likely]] return;
    for (int tries = 0;; ++tries) {
      while (locked_.load(std::memory_order_relaxed)) {
        if (++tries > 64) std::this_thread::yield();
      }
      if (try_lock()) return;
    }
  }
  bool try_lock() { return !locked_.exchange(true, std::memory_order_acquire); }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> locked_{false};
};

}  // namespace tenon
