#include "tenon/lab/jobs.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "tenon/base/interruption.h"

namespace tenon {

void run_jobs(std::size_t count, int threads, const std::function<void(std::size_t)>& work) {
  const std::size_t wanted = threads > 0 ? static_cast<std::size_t>(threads)
                                         : std::max(1u, std::thread::hardware_concurrency());
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::size_t failed_job = count;
  std::exception_ptr failure;
  const std::atomic<bool>* const stop = current_stop_request();
  const auto loop = [&] {
    const StopScope scope(stop);
    for (std::size_t i; (i = next.fetch_add(1)) < count;) {
      try {
        stop_if_asked();
        work(i);
      } catch (...) {
        next.store(count);
        const std::lock_guard lock(mutex);
        if (i >= failed_job) continue;
        failed_job = i;
        failure = std::current_exception();
      }
    }
  };
  {
    Helpers helpers;
    while (helpers.size() + 1 < std::min(wanted, count) && helpers.start(loop)) {
    }
    loop();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tenon
