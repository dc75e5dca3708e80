// The call stack of a request for memory, by a number that the stack source gives it.
#pragma once

#include <atomic>

namespace tenon::torch {

// Gives the number of the calling thread's stack; 0: it has none to speak of.
using StackSource = int (*)();

// While it lives, requests of this thread come from the stack that the source names. With no source
// that is one relaxed load. The source may take its time, and locks (Python's): it is asked before
// any lock of ours is held. What it does itself is not asked about.
class AskingStack {
 public:
  AskingStack() {
    const StackSource source = source_.load(std::memory_order_relaxed);
    if (source == nullptr || asking_) [[likely]] return;
    asking_ = true;
    number_ = source();
    asking_ = false;
  }
  ~AskingStack() { number_ = 0; }
  AskingStack(const AskingStack&) = delete;
  AskingStack& operator=(const AskingStack&) = delete;

  static int number() { return number_; }
  static void set_source(StackSource source) { source_ = source; }  // null: nobody asks

 private:
  static inline std::atomic<StackSource> source_{nullptr};
  static inline thread_local int number_ = 0;
  static inline thread_local bool asking_ = false;
};

}  // namespace tenon::torch
