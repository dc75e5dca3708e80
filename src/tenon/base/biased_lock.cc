#include "tenon/base/biased_lock.h"

#include <thread>

#if defined(__linux__)
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tenon {
namespace {

#if defined(__SANITIZE_THREAD__) || !defined(__linux__)
bool prepare_barrier() { return false; }
void barrier_on_every_thread() {}
#else
bool prepare_barrier() {
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}
void barrier_on_every_thread() {
  if (::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) return;
  prepare_barrier();  // a forked child may have to register again
  ::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}
#endif

bool can_be_biased() {
  static const bool answer = prepare_barrier();
  return answer;
}

}  // namespace

void BiasedLock::lock_slowly() {
  inside_.lock();
  const void* const owner = owner_.load(std::memory_order_relaxed);
  if (owner == thread_mark() || shared_) return;
  if (owner == nullptr) {
    if (mode_ == Owner::kFirstComer && can_be_biased())
      owner_.store(thread_mark(), std::memory_order_relaxed);
    return;
  }
  revoked_.store(true, std::memory_order_relaxed);
  barrier_on_every_thread();
  while (busy_.load(std::memory_order_acquire)) std::this_thread::yield();
  // An owner that read its own name a moment ago must still find itself revoked, so revoked_ stays.
  if (mode_ == Owner::kFirstComer && ++revocations_ == kMaxRevocations) {
    shared_ = true;
    owner_.store(nullptr, std::memory_order_relaxed);
  }
}

void BiasedLock::unlock_slowly() {
  if (!shared_) revoked_.store(false, std::memory_order_release);
  inside_.unlock();
}

void BiasedLock::become_owner() {
  if (can_be_biased()) owner_.store(thread_mark(), std::memory_order_relaxed);
}

}  // namespace tenon
