#include "tenon/base/biased_lock.h"

#include <algorithm>
#include <chrono>
#include <thread>

#if defined(__linux__)
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tenon {
namespace {

#if defined(__SANITIZE_THREAD__)
bool prepare_barrier() { return true; }
bool barrier_on_every_thread() { return true; }
constexpr auto kRevokersOrder = std::memory_order_seq_cst;
#elif defined(__linux__)
bool prepare_barrier() {
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}
bool ask_for_barrier() {
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}
bool barrier_on_every_thread() {
  if (ask_for_barrier()) return true;
  if (prepare_barrier() && ask_for_barrier()) return true;  // a forked child registers again
  // A sandbox that the program entered meanwhile refuses it. Within some ticks of the clock every
  // thread is interrupted, which is such a fence too.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return false;
}
constexpr auto kRevokersOrder = std::memory_order_acquire;
#else
bool prepare_barrier() { return false; }
bool barrier_on_every_thread() { return true; }
constexpr auto kRevokersOrder = std::memory_order_seq_cst;
#endif

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::steady_clock::now().time_since_epoch()).count());
}

enum Answer : int { kUnknown, kNo, kYes };
constinit std::atomic<Answer> possible{kUnknown};

}  // namespace

// No local static: a child forked while another thread prepares, which takes the kernel
// milliseconds, would wait for that thread for ever. To prepare twice does no harm.
bool Bias::is_possible() {
  Answer known = possible.load(std::memory_order_relaxed);
  if (known == kUnknown) {
    known = prepare_barrier() ? kYes : kNo;
    possible.store(known, std::memory_order_relaxed);
  }
  return known == kYes;
}

void Bias::revoke() {
  revoked_.store(true, std::memory_order_seq_cst);
  if (!barrier_on_every_thread()) possible.store(kNo, std::memory_order_relaxed);
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
