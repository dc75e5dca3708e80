#include "tenon/base/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tenon/base/environment.h"
#include "tenon/base/error.h"

namespace tenon {
namespace {

constexpr int kMostThreads = 4096;
constexpr std::chrono::microseconds kWakeTime{50};  // what waking a thread takes, or so

thread_local bool inside_loop = false;

int initial_threads() {
  const std::string_view wanted = environment_value("TENON_NUM_THREADS");
  int threads = 0;
  std::from_chars(wanted.data(), wanted.data() + wanted.size(), threads);
  if (threads > 0) return threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::atomic<int>& thread_limit() {
  static std::atomic<int> limit{initial_threads()};
  return limit;
}

// One loop in progress. A thread that is free takes the next piece.
struct Loop {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t piece = 0;
  detail::LoopBody body = nullptr;
  void* context = nullptr;
  void* shared = nullptr;
  std::atomic<std::int64_t> next{0};
  std::exception_ptr failure;
  std::once_flag failed;

  void work() {
    inside_loop = true;
    void* const own = std::exchange(detail::shared_with_workers(), shared);
    for (;;) {
      const std::int64_t from = next.fetch_add(piece, std::memory_order_relaxed);
      if (from >= end) break;
      try {
        body(context, from, std::min(from + piece, end));
      } catch (...) {
        std::call_once(failed, [&] { failure = std::current_exception(); });
        next.store(end, std::memory_order_relaxed);
      }
    }
    detail::shared_with_workers() = own;
    inside_loop = false;
  }
};

// Looks whether ready() has come true, for as long as waking a thread takes: so to look first and
// then to sleep costs at most twice what the better of the two does. It yields between two looks,
// so that another thread gets the processor if it wants it.
template <typename Ready>
void look_for(Ready ready) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + kWakeTime;
  while (!ready() && Clock::now() < end) std::this_thread::yield();
}

// Threads that wait for loops. Made at the first loop and never joined: they sleep until the
// process ends. One loop at a time; a second thread that comes meanwhile works alone.
class Workers {
 public:
  static Workers& instance() {
    static Workers& workers = made_anew_in_children();
    return workers;
  }

  bool try_run(Loop& loop, int helpers) {
    const std::unique_lock busy(busy_, std::try_to_lock);
    if (!busy.owns_lock()) return false;
    bool asleep = false;
    {
      const std::lock_guard lock(mutex_);
      while (static_cast<int>(count_) < helpers) {
        try {
          std::thread([this] { serve(); }).detach();
        } catch (const std::system_error&) {  // no more threads: those that there are do the work
          break;
        }
        ++count_;
      }
      loop_ = &loop;
      wanted_ = helpers;
      generation_.fetch_add(1, std::memory_order_release);
      asleep = asleep_ != 0;
    }
    if (asleep) wake_.notify_all();
    loop.work();
    std::unique_lock lock(mutex_);
    loop_ = nullptr;  // who has not come by now need not come
    if (active_ == 0) return true;
    lock.unlock();
    look_for([&] { return active_.load(std::memory_order_relaxed) == 0; });
    lock.lock();
    done_.wait(lock, [&] { return active_ == 0; });
    return true;
  }

 private:
  void serve() {
    std::uint64_t seen = 0;
    for (;;) {
      look_for([&] { return generation_.load(std::memory_order_relaxed) != seen; });
      std::unique_lock lock(mutex_);
      ++asleep_;
      wake_.wait(lock, [&] { return generation_ != seen; });
      --asleep_;
      seen = generation_;
      if (loop_ == nullptr || wanted_ == 0) continue;
      --wanted_;
      ++active_;
      Loop* loop = loop_;
      lock.unlock();
      loop->work();
      lock.lock();
      if (--active_ == 0) done_.notify_one();
    }
  }

  // A child of fork(2) has none of the threads, and its locks are as they were at that moment.
  static Workers& made_anew_in_children() {
    static Workers* const workers = new Workers;
    static_cast<void>(::pthread_atfork(nullptr, nullptr, [] { new (workers) Workers; }));
    return *workers;
  }

  std::mutex busy_;  // held by the thread whose loop it is
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  Loop* loop_ = nullptr;
  std::atomic<std::uint64_t> generation_{0};  // of loop_
  int count_ = 0;
  int asleep_ = 0;
  int wanted_ = 0;
  std::atomic<int> active_{0};
};

}  // namespace

void*& detail::shared_with_workers() {
  thread_local void* shared = nullptr;
  return shared;
}

int num_threads() { return thread_limit().load(std::memory_order_relaxed); }

void set_num_threads(int threads) {
  if (threads < 1 || threads > kMostThreads)
    raise<InvalidArgument>("set_num_threads({}): give a number from 1 to {}", threads,
                           kMostThreads);
  thread_limit().store(threads, std::memory_order_relaxed);
}

void detail::run_parallel(std::int64_t begin, std::int64_t end, std::int64_t grain, LoopBody body,
                          void* context) {
  const std::int64_t grains = (end - begin + grain - 1) / grain;
  const auto threads = static_cast<int>(std::min<std::int64_t>(num_threads(), grains));
  if (threads <= 1 || inside_loop) return body(context, begin, end);
  Loop loop;
  loop.end = end;
  loop.body = body;
  loop.context = context;
  loop.shared = shared_with_workers();
  // Four pieces for each thread even out cores of different speed.
  loop.piece = std::max<std::int64_t>(1, grains / (4 * threads)) * grain;
  loop.next.store(begin, std::memory_order_relaxed);
  if (!Workers::instance().try_run(loop, threads - 1)) return body(context, begin, end);
  if (loop.failure) std::rethrow_exception(loop.failure);
}

}  // namespace tenon
