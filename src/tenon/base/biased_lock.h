// A lock that costs its usual thread next to nothing.
#pragma once

#include <atomic>
#include <cstdint>

#include "tenon/base/fast_thread_local.h"
#include "tenon/base/spin_lock.h"

namespace tenon {

// Names the calling thread; another thread may get the same once this one has ended.
TENON_FAST_THREAD_LOCAL inline constinit thread_local char this_threads_mark = 0;
inline const void* thread_mark() { return &this_threads_mark; }

// The owner locks and unlocks with plain loads and stores. Any other thread takes the lock inside
// and revokes the owner's right for as long as it holds it, at the price of a system call.
// Satisfies BasicLockable. Who owns it:
//   kFirstComer  the first thread that takes it. After kMaxRevocations it is nobody's any more, and
//                a SpinLock from then on: many threads want it.
//   kAppointed   whoever called become_owner, until it resigns.
//
// Note [asymmetric locking]: owner and revoker play Dekker's game; each writes its own flag and
// then reads the other's. That needs a full fence between the two on both sides. The owner, who is
// in a hurry, leaves its fence out; the revoker pays for both by membarrier(2), which makes every
// running thread of the process execute one. (Dice, Huang, Yang: Asymmetric Dekker
// Synchronization, 2001.) Where the system has no membarrier, and under ThreadSanitizer, which
// does not know it, no thread becomes owner.
class BiasedLock {
 public:
  static constexpr std::uint32_t kMaxRevocations = 64;
  enum class Owner : bool { kFirstComer, kAppointed };

  explicit BiasedLock(Owner mode = Owner::kFirstComer) : mode_(mode) {}

  void lock() {
    if (!try_lock_as_owner()) [[unlikely]] lock_slowly();
  }
  void unlock() {
    // Only the owner sets busy_, and lets it stand only while it holds the lock by it.
    if (is_owner() && busy_.load(std::memory_order_relaxed)) [[likely]]
      unlock_as_owner();
    else
      unlock_slowly();
  }

  // The two halves of the common case, for callers that have another way out. try_lock_as_owner
  // fails for all but the owner, and for the owner while somebody else is inside.
  bool try_lock_as_owner() {
    return is_owner() && try_lock_as_known_owner();
  }
  // Requires: the caller owns it (is_owner).
  bool try_lock_as_known_owner() {
    busy_.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler's order; see the Note
    if (!revoked_.load(std::memory_order_acquire)) [[likely]] return true;
    busy_.store(false, std::memory_order_release);
    return false;
  }
  void unlock_as_owner() { busy_.store(false, std::memory_order_release); }

  // With kAppointed it stays true until the thread resigns.
  bool is_owner() const { return owner_.load(std::memory_order_relaxed) == thread_mark(); }
  // The caller, who holds the lock, owns it from now on. Requires: kAppointed; nobody owns it.
  void become_owner();
  // After fork(2), by the caller, who holds the lock: its owner is gone.
  void forget_owner() { owner_.store(nullptr, std::memory_order_relaxed); }
  // The caller, who is not inside, does not own it any more. (Only the owner can say so: it may be
  // about to enter.)
  void resign() {
    if (is_owner()) owner_.store(nullptr, std::memory_order_release);
  }

 private:
  void lock_slowly();
  void unlock_slowly();

  std::atomic<const void*> owner_{nullptr};  // a thread_mark
  std::atomic<bool> busy_{false};            // the owner holds the lock, or is about to look
  std::atomic<bool> revoked_{false};         // the owner must take the lock inside as well
  bool shared_ = false;                      // for good: nobody's any more; under inside_
  std::uint32_t revocations_ = 0;            // under inside_
  const Owner mode_;
  SpinLock inside_;

  friend class BiasedGuard;
};

// Holds a BiasedLock and remembers how it was taken, so that the owner leaves by one store.
class BiasedGuard {
 public:
  explicit BiasedGuard(BiasedLock& lock) : lock_(lock), as_owner_(lock.try_lock_as_owner()) {
    if (!as_owner_) [[unlikely]] lock_.lock_slowly();
  }
  ~BiasedGuard() {
    if (as_owner_) [[likely]]
      lock_.unlock_as_owner();
    else
      lock_.unlock_slowly();
  }
  BiasedGuard(const BiasedGuard&) = delete;
  BiasedGuard& operator=(const BiasedGuard&) = delete;

 private:
  BiasedLock& lock_;
  const bool as_owner_;
};

}  // namespace tenon
