// A spin lock whose holder may stay long.
#pragma once

#include <atomic>
#include <mutex>

#include "tenon/base/spin_lock.h"

namespace tenon {

// As cheap as a SpinLock while its critical sections are short. A holder that is about to make a
// system call, to allocate or to sort says so (Stay): a thread that wants the lock meanwhile sleeps
// on a mutex instead of spinning. Satisfies BasicLockable.
class LongLock {
 public:
  void lock() {
    if (!spin_.try_lock()) [[unlikely]] lock_slowly();
  }
  void unlock() { spin_.unlock(); }
  // Around fork(2): afterwards, in the child too, the lock is free.
  void before_fork() {
    lock();
    sleepers_.lock();
  }
  void after_fork() {
    sleepers_.unlock();
    unlock();
  }

  // Requires: the caller holds the lock until the Stay has ended.
  class Stay {
   public:
    explicit Stay(LongLock& lock) : lock_(lock) {
      lock_.sleepers_.lock();
      lock_.stays_.store(true, std::memory_order_relaxed);
    }
    ~Stay() {
      lock_.stays_.store(false, std::memory_order_relaxed);
      lock_.sleepers_.unlock();
    }
    Stay(const Stay&) = delete;
    Stay& operator=(const Stay&) = delete;

   private:
    LongLock& lock_;
  };

 private:
  [[gnu::noinline, gnu::cold]] void lock_slowly() {
    for (Backoff backoff; !spin_.try_lock();) {
      if (stays_.load(std::memory_order_relaxed))
        const std::lock_guard until_it_ends(sleepers_);
      else
        backoff.wait();
    }
  }

  SpinLock spin_;
  std::atomic<bool> stays_{false};
  std::mutex sleepers_;  // held by who stays
};

}  // namespace tenon
