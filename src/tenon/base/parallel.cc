#include "tenon/base/parallel.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
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
constexpr int kPlaced = 8;  // workers that are kept off: of more, a late one is hardly felt

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

// One loop in progress. Each thread has a portion, the same in every loop of these bounds, so that
// it finds what it wrote before in its caches. It takes the pieces of its own, then of the others.
struct Loop {
  struct alignas(64) Portion {
    std::atomic<std::int64_t> next{0};
    std::int64_t end = 0;
  };
  static constexpr int kMostPortions = 16;  // further threads share them

  Loop(std::int64_t begin, std::int64_t end, std::int64_t grain, int threads)
      : portion_count(std::min(threads, kMostPortions)) {
    const std::int64_t grains = (end - begin + grain - 1) / grain;
    // Four pieces for each thread even out cores of different speed.
    piece = std::max<std::int64_t>(1, grains / (4 * threads)) * grain;
    for (int i = 0; i < portion_count; ++i) {
      portions[i].next.store(begin + grains * i / portion_count * grain, std::memory_order_relaxed);
      portions[i].end = std::min(end, begin + grains * (i + 1) / portion_count * grain);
    }
  }

  void work(int thread) {
    inside_loop = true;
    void* const own = std::exchange(detail::shared_with_workers(), shared);
    for (int i = 0; i < portion_count; ++i) work_on(portions[(thread + i) % portion_count]);
    detail::shared_with_workers() = own;
    inside_loop = false;
  }

  std::int64_t piece = 0;
  detail::LoopBody body = nullptr;
  void* context = nullptr;
  void* shared = nullptr;
  std::exception_ptr failure;

 private:
  void work_on(Portion& portion) {
    for (;;) {
      const std::int64_t from = portion.next.fetch_add(piece, std::memory_order_relaxed);
      if (from >= portion.end) return;
      try {
        body(context, from, std::min(from + piece, portion.end));
      } catch (...) {
        std::call_once(failed, [&] { failure = std::current_exception(); });
        for (int i = 0; i < portion_count; ++i)
          portions[i].next.store(portions[i].end, std::memory_order_relaxed);
      }
    }
  }

  int portion_count;
  Portion portions[kMostPortions];
  std::once_flag failed;
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
      add_threads(helpers);
      loop_ = &loop;
      wanted_ = helpers;
      generation_.fetch_add(1, std::memory_order_release);
      asleep = asleep_ != 0;
      keep_off_this_processor();
    }
    if (asleep) wake_.notify_all();
    loop.work(0);
    std::unique_lock lock(mutex_);
    loop_ = nullptr;  // who has not come by now need not come
    if (active_ == 0) return true;
    lock.unlock();
    look_for([&] { return active_.load(std::memory_order_relaxed) == 0; });
    lock.lock();
    if (active_ != 0) let_run_here();
    done_.wait(lock, [&] { return active_ == 0; });
    return true;
  }

 private:
  void add_threads(int wanted) {
    while (count_ < wanted) {
      try {
        std::thread thread([this, number = count_ + 1] { serve(number); });
        if (count_ < kPlaced) placed_[static_cast<std::size_t>(count_)] = thread.native_handle();
        thread.detach();
      } catch (const std::system_error&) {  // no more threads: those that there are do the work
        return;
      }
      ++count_;
      kept_off_ = -1;
    }
  }

  // Linux may queue a thread behind the one that wakes it while another processor sleeps: in
  // virtual machines often, since a sleeping processor does not count as idle there. It would come
  // when the loop is over. So the threads may run wherever the caller may, but not where it is.
  void keep_off_this_processor() {
    const int here = ::sched_getcpu();
    const pthread_t caller = ::pthread_self();
    if (here < 0 || here >= CPU_SETSIZE) return;
    if (here == kept_off_ && ::pthread_equal(caller, kept_off_by_) != 0) return;
    kept_off_ = here;
    kept_off_by_ = caller;
    place([here](cpu_set_t& allowed) { CPU_CLR(static_cast<std::size_t>(here), &allowed); });
  }
  // The caller is about to sleep.
  void let_run_here() {
    kept_off_ = -1;
    place([](cpu_set_t&) {});
  }
  template <typename Change>
  void place(Change&& change) {
    cpu_set_t allowed;
    if (::pthread_getaffinity_np(::pthread_self(), sizeof(allowed), &allowed) != 0) return;
    change(allowed);
    if (CPU_COUNT(&allowed) == 0) return;
    for (int i = 0; i < std::min(count_, kPlaced); ++i)
      ::pthread_setaffinity_np(placed_[static_cast<std::size_t>(i)], sizeof(allowed), &allowed);
  }

  void serve(int number) {
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
      loop->work(number);
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
  std::array<pthread_t, kPlaced> placed_{};
  int kept_off_ = -1;  // the processor that those may not run on, and whose it is; -1: none
  pthread_t kept_off_by_{};
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
  Loop loop(begin, end, grain, threads);
  loop.body = body;
  loop.context = context;
  loop.shared = shared_with_workers();
  if (!Workers::instance().try_run(loop, threads - 1)) return body(context, begin, end);
  if (loop.failure) std::rethrow_exception(loop.failure);
}

}  // namespace tenon
