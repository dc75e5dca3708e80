#include "tenon/base/spin_lock.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace tenon {

void Backoff::wait_slowly() {
  constexpr int kYields = 64;
  const int waits = tries_ - kLooks - kYields;
  if (waits <= 0) return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds(std::min(10 * waits, 1000)));
}

void SpinLock::lock_slowly() {
  Backoff backoff;
  do {
    while (locked_.load(std::memory_order_relaxed)) backoff.wait();
  } while (!try_lock());
}

}  // namespace tenon
