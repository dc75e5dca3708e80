// Locks that cost their usual thread next to nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tenon/base/fast_thread_local.h"
#include "tenon/base/spin_lock.h"

namespace tenon {

// Names the calling thread; another thread may get the same once this one has ended.
TENON_FAST_THREAD_LOCAL inline constinit thread_local char this_threads_mark = 0;
inline const void* thread_mark() { return &this_threads_mark; }

// One thread's right to enter by plain loads and stores, until another revokes it.
//
// Note [asymmetric locking]: owner and revoker play Dekker's game; each writes its own flag and
// then reads the other's. That needs a full fence between the two on both sides. The owner, who is
// in a hurry, leaves its fence out; the revoker pays for both by membarrier(2), which makes every
// running thread of the process execute one. (Dice, Huang, Yang: Asymmetric Dekker
// Synchronization, 2001.) Where the system has no membarrier no thread becomes owner. Where a
// sandbox refuses it later, a revoker waits for the clock to interrupt all threads.
// ThreadSanitizer does not know it, so under that both sides use sequentially consistent accesses.
class Bias {
 public:
  // --- The owner's.
  bool is_callers() const { return owner() == thread_mark(); }
  // False when it is revoked. Requires: is_callers().
  bool try_enter() {
    busy_.store(true, kOwnersStore);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler's order; see the Note
    if (!revoked_.load(kOwnersLoad)) [[likely]] return true;
    busy_.store(false, std::memory_order_release);
    return false;
  }
  void leave() { busy_.store(false, std::memory_order_release); }
  // The owner is inside, or is about to look whether it may.
  bool is_busy() const { return busy_.load(std::memory_order_relaxed); }

  // --- For a lock, under what guards all else.
  static bool is_possible();
  const void* owner() const { return owner_.load(std::memory_order_relaxed); }
  // The same, ordered after the `grant` that set it.
  const void* owner_acquired() const { return owner_.load(std::memory_order_acquire); }
  // Requires: no thread but `owner` can be about to enter by this bias.
  void grant(const void* owner) {
    revoked_.store(false, std::memory_order_release);
    owner_.store(owner, std::memory_order_release);
  }
  void hand_in() { owner_.store(nullptr, std::memory_order_relaxed); }
  // After fork(2), where the owner is gone. It may have been between its store and its look, so
  // the flag that it cannot take back is taken back for it.
  void forget_owner() {
    busy_.store(false, std::memory_order_relaxed);
    grant(nullptr);
  }
  // The owner does not enter any more until `restore`, and is not inside when this returns.
  void revoke();
  void restore() { revoked_.store(false, std::memory_order_release); }

 private:
#if defined(__SANITIZE_THREAD__)
  static constexpr auto kOwnersStore = std::memory_order_seq_cst;
  static constexpr auto kOwnersLoad = std::memory_order_seq_cst;
#else
  static constexpr auto kOwnersStore = std::memory_order_relaxed;
  static constexpr auto kOwnersLoad = std::memory_order_acquire;
#endif

  std::atomic<const void*> owner_{nullptr};  // a thread_mark
  std::atomic<bool> busy_{false};
  std::atomic<bool> revoked_{false};
};

// A lock that is biased to the thread that takes it most. Satisfies BasicLockable.
//
//   biased to A:  A enters by two plain stores. Another thread revokes the bias (a system call),
//                 and the lock is shared.
//   shared:       a SpinLock. A thread that has taken it `turns_to_own_` times in a row becomes the
//                 owner.
//
// What a shared lock costs until then is about what a revocation costs, so at any rate of visits by
// other threads the sum is at most some twice the better of the two. A bias that is revoked within
// kSoonNs doubles the turns, up to kMostTurns; one that lasted longer resets them.
//
// Its holder may call the driver, or wait for the device: a thread that waits for it meanwhile
// sleeps (Backoff).
//
// Note [Stale owners]: a thread that has read its own name in a bias may stop there for any time
// and then go on to enter. So a bias is given to another thread only after its owner has handed it
// in, which the owner does when it comes to the shared lock. Meanwhile another bias of the lock's
// serves the new owner. Where all kBiases wait for owners that never return, the lock stays
// shared.
class BiasedLock {
 public:
  static constexpr std::uint32_t kFirstTurns = 256;
  static constexpr std::uint32_t kMostTurns = 1 << 16;
  static constexpr std::uint64_t kSoonNs = 100'000;
  static constexpr std::size_t kBiases = 4;

  BiasedLock() = default;
  BiasedLock(const BiasedLock&) = delete;
  BiasedLock& operator=(const BiasedLock&) = delete;

  void lock() {
    if (try_enter() == nullptr) [[unlikely]] lock_slowly();
  }
  void unlock() {
    // Only the owner is busy, and stays so only while it is inside by its bias.
    Bias& bias = *bias_.load(std::memory_order_relaxed);
    if (bias.is_callers() && bias.is_busy()) [[likely]]
      bias.leave();
    else
      unlock_slowly();
  }
  // Whether the lock is the calling thread's.
  bool is_owner() const { return bias_.load(std::memory_order_relaxed)->is_callers(); }

 private:
  friend class BiasedGuard;
  template <typename Lock>
  friend class OwnerGuard;

  Bias* try_enter() {
    Bias* const bias = bias_.load(std::memory_order_relaxed);
    return bias->is_callers() && bias->try_enter() ? bias : nullptr;
  }
  void lock_slowly();
  void unlock_slowly() { inside_.unlock(); }
  void revoke();
  void take_turn();
  void try_to_own();

  std::array<Bias, kBiases> biases_;
  std::atomic<Bias*> bias_{&biases_[0]};  // the one in force, or, while shared, the last
  SpinLock inside_;                       // all below
  bool shared_ = false;
  std::uint32_t turns_ = 0;               // in a row, of the thread that took it last
  std::uint32_t turns_to_own_ = kFirstTurns;
  const void* last_ = nullptr;            // its mark
  std::uint64_t granted_at_ns_ = 0;       // the bias
};

// A lock whose owner is appointed, and stays so until it resigns: any other thread revokes the bias
// for as long as it is inside. Satisfies BasicLockable.
class AppointedLock {
 public:
  AppointedLock() = default;
  AppointedLock(const AppointedLock&) = delete;
  AppointedLock& operator=(const AppointedLock&) = delete;

  void lock() {
    if (try_enter() == nullptr) [[unlikely]] lock_slowly();
  }
  void unlock() {
    if (bias_.is_callers() && bias_.is_busy()) [[likely]]
      bias_.leave();
    else
      unlock_slowly();
  }
  bool is_owner() const { return bias_.is_callers(); }

  // The caller, who holds the lock, owns it from now on. Requires: no thread owns it.
  void become_owner() {
    if (Bias::is_possible()) bias_.grant(thread_mark());
  }
  // The caller, who is not inside, does not own it any more. (Only the owner can say so: it may be
  // about to enter.)
  void resign() {
    if (is_owner()) bias_.grant(nullptr);
  }

  // Around fork(2). The lock is taken as by a visitor, also by its owner: a visitor that waits for
  // the owner holds `inside_`, and would hold it for ever in the child. An owner other than the
  // caller is gone there.
  void before_fork() { lock_slowly(); }
  void after_fork_in_parent() { unlock_slowly(); }
  void after_fork_in_child() {
    if (!is_owner()) bias_.forget_owner();
    unlock_slowly();
  }

 private:
  template <typename Lock>
  friend class OwnerGuard;

  Bias* try_enter() { return is_owner() ? try_enter_as_known_owner() : nullptr; }
  Bias* try_enter_as_known_owner() { return bias_.try_enter() ? &bias_ : nullptr; }
  void lock_slowly();
  void unlock_slowly() {
    bias_.restore();
    inside_.unlock();
  }

  [[no_unique_address]] Bias bias_;  // its padding has room for the SpinLock
  SpinLock inside_;
};

// Holds a BiasedLock and remembers how it was taken, so that the owner leaves by one store.
class BiasedGuard {
 public:
  explicit BiasedGuard(BiasedLock& lock) : lock_(lock), entered_(lock.try_enter()) {
    if (entered_ == nullptr) [[unlikely]] lock_.lock_slowly();
  }
  ~BiasedGuard() {
    if (entered_ != nullptr) [[likely]]
      entered_->leave();
    else
      lock_.unlock_slowly();
  }
  BiasedGuard(const BiasedGuard&) = delete;
  BiasedGuard& operator=(const BiasedGuard&) = delete;

 private:
  BiasedLock& lock_;
  Bias* const entered_;
};

// Holds either lock if the caller owns it and may enter, else nothing:
//   if (const OwnerGuard guard(lock); guard) ...
struct KnownOwner {};  // a caller that knows it owns the lock says so
template <typename Lock>
class OwnerGuard {
 public:
  OwnerGuard() = default;  // holds nothing
  explicit OwnerGuard(Lock& lock) : entered_(lock.try_enter()) {}
  OwnerGuard(Lock& lock, KnownOwner) : entered_(lock.try_enter_as_known_owner()) {}
  ~OwnerGuard() {
    if (entered_ != nullptr) entered_->leave();
  }
  OwnerGuard(const OwnerGuard&) = delete;
  OwnerGuard& operator=(const OwnerGuard&) = delete;

  explicit operator bool() const { return entered_ != nullptr; }

 private:
  Bias* const entered_ = nullptr;
};

}  // namespace tenon
