// Another thread that does single things when told, so that two threads take turns.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <thread>
#include <utility>

namespace tenon {

// run(f) calls f on the second thread and returns when it is done; what it throws is thrown here.
// So a schedule on two threads is as deterministic as on one. The thread starts at the first call.
class SecondThread {
 public:
  SecondThread() = default;
  ~SecondThread() {
    if (!thread_.joinable()) return;
    task_ = nullptr;
    signal(kGo);
    thread_.join();
  }
  SecondThread(const SecondThread&) = delete;
  SecondThread& operator=(const SecondThread&) = delete;

  void run(std::function<void()> task) {
    if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
    task_ = std::move(task);
    signal(kGo);
    turn_.wait(kGo, std::memory_order_acquire);
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  static constexpr int kIdle = 0;
  static constexpr int kGo = 1;

  void signal(int turn) {
    turn_.store(turn, std::memory_order_release);
    turn_.notify_one();
  }
  void serve() {
    for (;;) {
      turn_.wait(kIdle, std::memory_order_acquire);
      if (!task_) return;
      try {
        task_();
      } catch (...) {
        error_ = std::current_exception();
      }
      signal(kIdle);
    }
  }

  std::atomic<int> turn_{kIdle};
  std::function<void()> task_;  // belongs to whoever's turn it is; empty: end
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace tenon
