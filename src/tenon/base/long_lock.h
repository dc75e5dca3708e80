// A spin lock whose holder may stay long.
#pragma once

#include <mutex>

#include "tenon/base/spin_lock.h"

namespace tenon {

// As cheap as a SpinLock while its critical sections are short. A holder that is about to make a
// system call or to sort says so (Stay): it still has the lock alone, and a thread that wants it
// meanwhile sleeps on a mutex instead of spinning. Satisfies BasicLockable.
class LongLock {
 public:
  void lock() {
    spin_.lock();
    if (stays_) [[unlikely]] lock_slowly();
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

  // Requires: the caller holds the lock, and holds it when the Stay ends.
  class Stay {
   public:
    explicit Stay(LongLock& lock) : lock_(lock) {
      lock_.stays_ = true;
      lock_.spin_.unlock();
      lock_.sleepers_.lock();
    }
    ~Stay() {
      lock_.spin_.lock();
      lock_.stays_ = false;
      lock_.sleepers_.unlock();
    }
    Stay(const Stay&) = delete;
    Stay& operator=(const Stay&) = delete;

   private:
    LongLock& lock_;
  };

 private:
  void lock_slowly() {
    while (stays_) {
      spin_.unlock();
      { const std::lock_guard until_it_ends(sleepers_); }
      spin_.lock();
    }
  }

  SpinLock spin_;
  bool stays_ = false;  // under spin_
  std::mutex sleepers_;  // held by who stays
};

}  // namespace tenon
