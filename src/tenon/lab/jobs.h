// Independent pieces of work on several threads. O(count) beside the work.
#pragma once

#include <cstddef>
#include <functional>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace tenon {

// Calls work(i) once for each i below `count`, taken in order by `threads` threads (0: one for each
// core). The caller is one of them. Returns when all have ended. When calls throw, no further ones
// are begun, and what the one with the lowest number threw is thrown here. The threads obey the
// caller's stop request (base/interruption.h), which is looked at before each call.
void run_jobs(std::size_t count, int threads, const std::function<void(std::size_t)>& work);

// Threads that are waited for at the end of their scope. Not thread-safe.
class Helpers {
 public:
  Helpers() = default;
  ~Helpers() {
    for (std::thread& thread : threads_) thread.join();
  }
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

  // Starts one more thread, which calls `work`. False where the machine gives none; the caller goes
  // on with those it has.
  template <typename Work>
  bool start(Work work) {
    try {
      threads_.emplace_back(std::move(work));
      return true;
    } catch (const std::system_error&) {
      return false;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  std::size_t size() const { return threads_.size(); }  // that were started

 private:
  std::vector<std::thread> threads_;
};

}  // namespace tenon
