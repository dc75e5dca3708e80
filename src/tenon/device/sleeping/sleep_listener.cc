#include "tenon/device/sleeping/sleep_listener.h"

#include <mutex>

namespace tenon {
namespace {

// Never destroyed: memory may wake while static objects end.
struct Listeners {
  std::mutex mutex;
  std::vector<SleepListener*> all;

  static Listeners& instance() {
    static Listeners& listeners = *new Listeners;
    return listeners;
  }
};

}  // namespace

void add_sleep_listener(SleepListener* listener) {
  Listeners& listeners = Listeners::instance();
  const std::lock_guard lock(listeners.mutex);
  listeners.all.push_back(listener);
}

void remove_sleep_listener(SleepListener* listener) {
  Listeners& listeners = Listeners::instance();
  const std::lock_guard lock(listeners.mutex);
  std::erase(listeners.all, listener);
}

void report_sleep(const SleepChange& change) {
  Listeners& listeners = Listeners::instance();
  const std::lock_guard lock(listeners.mutex);
  for (SleepListener* listener : listeners.all) {
    try {
      listener->on_sleep(change);
    } catch (...) {
    }
  }
}

}  // namespace tenon
