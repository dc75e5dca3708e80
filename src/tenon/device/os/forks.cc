#include "tenon/device/os/forks.h"

#include <pthread.h>

#include <atomic>

namespace tenon::os {
namespace {

std::atomic<unsigned> forks{0};

}  // namespace

unsigned count_forks() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(registered);
  return forks.load(std::memory_order_relaxed);
}

}  // namespace tenon::os
