// Batches made ahead of the program, in a thread of their own. Throws std::runtime_error where no
// thread can be started. O(1) beside the filling.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace tenon::nn {

// Runs fill(number, slot) for number = first, first + 1, ... below `end`, as many ahead as there
// are slots less the one that the program holds. Slots are used over and over: their memory is made
// once, and nothing is allocated while the program runs.
//
// What comes out is the same as without a thread: batch n is what fill makes of number n. An
// exception of fill comes out of next(). The destructor waits for the batch being made. One thread
// may call next().
template <typename Batch>
class Prefetcher {
 public:
  // Fills the slot and returns the batch, on the prefetcher's thread.
  using Fill = std::function<Batch(std::uint64_t number, Batch& slot)>;

  // Requires: at least two slots.
  Prefetcher(std::vector<Batch> slots, std::uint64_t first, std::uint64_t end, Fill fill)
      : slots_(std::move(slots)),
        ready_(slots_.size()),
        fill_(std::move(fill)),
        next_(first),
        end_(end),
        thread_(start(first)) {}
  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next batch, until the next call; null when there are no more.
  const Batch* next() {
    std::unique_lock lock(mutex_);
    if (held_) {  // the slot of the last one may be filled again
      ready_[slot_of(*held_)].reset();
      held_.reset();
      changed_.notify_all();
    }
    if (next_ >= end_) return nullptr;
    std::optional<Batch>& batch = ready_[slot_of(next_)];
    changed_.wait(lock, [&] { return batch.has_value() || failure_ != nullptr; });
    if (!batch.has_value()) std::rethrow_exception(failure_);
    held_ = next_++;
    return &*batch;
  }

 private:
  std::thread start(std::uint64_t first) {
    try {
      return std::thread([this, first] { make(first); });
    } catch (const std::system_error& error) {
      throw std::runtime_error(std::string("no thread for batches can be started: ") +
                               error.what() + ": raise the limit on processes (ulimit -u)");
    }
  }

  std::size_t slot_of(std::uint64_t number) const {
    return static_cast<std::size_t>(number % slots_.size());
  }

  void make(std::uint64_t first) {
    for (std::uint64_t number = first; number < end_; ++number) {
      const std::size_t slot = slot_of(number);
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stopped_ || !ready_[slot].has_value(); });
        if (stopped_) return;
      }
      std::optional<Batch> made;
      std::exception_ptr failure;
      try {
        made = fill_(number, slots_[slot]);
      } catch (...) {
        failure = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex_);
        ready_[slot] = std::move(made);
        failure_ = failure;
      }
      changed_.notify_all();
      if (failure != nullptr) return;
    }
  }

  std::vector<Batch> slots_;
  std::vector<std::optional<Batch>> ready_;  // by slot
  const Fill fill_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::exception_ptr failure_;
  std::uint64_t next_;                 // that next() gives
  const std::uint64_t end_;
  std::optional<std::uint64_t> held_;  // by the program
  bool stopped_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace tenon::nn
