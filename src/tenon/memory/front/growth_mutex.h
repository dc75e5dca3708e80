// The mutex of an allocator's growth.
#pragma once

#include <atomic>
#include <mutex>

namespace tenon {

// Held across driver calls, and taken again at once by a thread that grows again. So a thread that
// asks for figures would wait for many growths: a std::mutex wakes it, and is taken again before it
// runs. Here it waits for the growth under way, and at most one more. Satisfies BasicLockable.
class GrowthMutex {
 public:
  // Lets a thread that asks go first.
  void lock() {
    if (is_asked_.load(std::memory_order_relaxed)) const std::lock_guard after(turn_);
    mutex_.lock();
  }
  void unlock() { mutex_.unlock(); }
  // For questions.
  [[nodiscard]] std::unique_lock<GrowthMutex> ask() {
    if (!mutex_.try_lock()) {
      const std::lock_guard turn(turn_);
      is_asked_.store(true, std::memory_order_relaxed);
      mutex_.lock();
      is_asked_.store(false, std::memory_order_relaxed);
    }
    return {*this, std::adopt_lock};
  }

 private:
  std::mutex mutex_;
  std::mutex turn_;  // of the thread that asks
  std::atomic<bool> is_asked_{false};
};

}  // namespace tenon
