// The thread that gives idle host memory back.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace tenon::host {

// Calls `tick` once every period, on a thread of its own, until that says there is nothing left to
// do; then the thread sleeps until it is woken. It is started by the first wake. Where no thread
// can be had nothing decays.
class DecayThread {
 public:
  // `tick` returns whether there may be something to do in a period's time.
  DecayThread(std::chrono::nanoseconds period, std::function<bool()> tick)
      : period_(period), tick_(std::move(tick)) {}
  ~DecayThread();  // waits for a tick in progress
  DecayThread(const DecayThread&) = delete;
  DecayThread& operator=(const DecayThread&) = delete;

  // There is something to do in a period's time. One load when the thread is awake.
  void wake() {
    if (!awake_.load(std::memory_order_seq_cst)) [[unlikely]] wake_slowly();
  }

  // Around fork(2): the child has no such thread until it wakes one.
  void before_fork() { state_->mutex.lock(); }
  void after_fork_in_parent() { state_->mutex.unlock(); }
  void after_fork_in_child();

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool stop = false;
    std::thread thread;
  };

  void wake_slowly();
  void run();

  const std::chrono::nanoseconds period_;
  const std::function<bool()> tick_;
  std::atomic<bool> awake_{false};
  std::unique_ptr<State> state_ = std::make_unique<State>();
};

}  // namespace tenon::host
