#include "tenon/base/biased_lock.h"

#include <algorithm>
#include <chrono>

#if defined(__linux__)
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tenon {
namespace {

#if defined(__SANITIZE_THREAD__)
bool prepare_barrier() { return true; }
void barrier_on_every_thread() {}
constexpr auto kRevokersOrder = std::memory_order_seq_cst;
#elif defined(__linux__)
bool prepare_barrier() {
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}
void barrier_on_every_thread() {
  if (::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) return;
  prepare_barrier();  // a forked child may have to register again
  ::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}
constexpr auto kRevokersOrder = std::memory_order_acquire;
#else
bool prepare_barrier() { return false; }
void barrier_on_every_thread() {}
constexpr auto kRevokersOrder = std::memory_order_seq_cst;
#endif

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::steady_clock::now().time_since_epoch()).count());
}

}  // namespace

// No local static: a child forked while another thread prepares, which takes the kernel
// milliseconds, would wait for that thread for ever. To prepare twice does no harm.
bool Bias::is_possible() {
  enum Answer : int { kUnknown, kNo, kYes };
  static constinit std::atomic<Answer> answer{kUnknown};
  Answer known = answer.load(std::memory_order_relaxed);
  if (known == kUnknown) {
    known = prepare_barrier() ? kYes : kNo;
    answer.store(known, std::memory_order_relaxed);
  }
  return known == kYes;
}

void Bias::revoke() {
  revoked_.store(true, std::memory_order_seq_cst);
  barrier_on_every_thread();
  for (Backoff backoff; busy_.load(kRevokersOrder);) backoff.wait();
}

void BiasedLock::lock_slowly() {
  inside_.lock();
  if (!shared_) {
    Bias& bias = *bias_.load(std::memory_order_relaxed);
    if (bias.is_callers()) return;
    if (bias.owner() == nullptr) {  // not taken yet
      shared_ = true;
      return try_to_own();
    }
    revoke();
  }
  take_turn();
}

void BiasedLock::revoke() {
  bias_.load(std::memory_order_relaxed)->revoke();
  shared_ = true;
  last_ = nullptr;
  const bool soon = now_ns() - granted_at_ns_ < kSoonNs;
  turns_to_own_ = soon ? std::min(2 * turns_to_own_, kMostTurns) : kFirstTurns;
}

void BiasedLock::take_turn() {
  const void* const mark = thread_mark();
  if (last_ != mark) {
    last_ = mark;
    turns_ = 0;
    for (Bias& bias : biases_)  // Note [Stale owners]: handed in
      if (bias.owner() == mark) bias.hand_in();
  }
  if (++turns_ >= turns_to_own_) try_to_own();
}

void BiasedLock::try_to_own() {
  turns_ = 0;
  if (!Bias::is_possible()) return;
  const auto free = std::find_if(biases_.begin(), biases_.end(),
                                 [](const Bias& bias) { return bias.owner() == nullptr; });
  if (free == biases_.end()) return;
  free->grant(thread_mark());
  bias_.store(&*free, std::memory_order_relaxed);
  shared_ = false;
  granted_at_ns_ = now_ns();
}

void AppointedLock::lock_slowly() {
  inside_.lock();
  // Acquires what an owner that has resigned did inside: no revocation waits for that one.
  const void* const owner = bias_.owner_acquired();
  if (owner != nullptr && owner != thread_mark()) bias_.revoke();
}

}  // namespace tenon
