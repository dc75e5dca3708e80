#include "fleet_workers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "tenon/base/byte_size.h"

namespace tenon::command {
namespace {

// What a worker ends with.
constexpr int kDone = 0;
constexpr int kRunFails = 10;   // its message says why no job can succeed
constexpr int kNoMemory = 11;

// The signals that end a program, kept from ending this one: take() has them.
class SignalWatch {
 public:
  SignalWatch() {
    ::sigemptyset(&watched_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction action = {};
      ::sigaction(signal, nullptr, &action);
      if (action.sa_handler != SIG_IGN) ::sigaddset(&watched_, signal);
    }
    ::signal(SIGCHLD, SIG_DFL);  // else the system takes the statuses of workers
    ::sigprocmask(SIG_BLOCK, &watched_, &before_);
    file_ = ::signalfd(-1, &watched_, SFD_CLOEXEC | SFD_NONBLOCK);
    if (file_ < 0) throw std::system_error(errno, std::generic_category(), "no signalfd");
  }
  ~SignalWatch() {
    ::close(file_);
    restore();
  }
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  void restore() const { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  int file() const { return file_; }  // readable when one came
  // 0: none came.
  int take() const {
    signalfd_siginfo signal = {};
    return ::read(file_, &signal, sizeof(signal)) < 0 ? 0 : static_cast<int>(signal.ssi_signo);
  }

 private:
  int file_ = -1;
  sigset_t watched_ = {};
  sigset_t before_ = {};
};

// The system takes memory from a worker first, and leaves no core of it.
void limit_worker(std::uint64_t memory_bytes) {
  if (const int file = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); file >= 0) {
    [[maybe_unused]] const ssize_t written = ::write(file, "1000", 4);
    ::close(file);
  }
  const rlimit none = {0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // whose shadow counts, too
  rlimit data = {};
  ::getrlimit(RLIMIT_DATA, &data);
  data.rlim_cur = std::min<rlim_t>(data.rlim_max, memory_bytes);
  ::setrlimit(RLIMIT_DATA, &data);
#else
  static_cast<void>(memory_bytes);
#endif
}

// The worker's whole life; its message goes into `messages`.
[[noreturn]] void be_worker(const WorkerLimits& limits, const WorkerJobs& jobs, std::size_t job,
                            int messages) {
  limit_worker(limits.memory_bytes);
  try {
    jobs.work(job);
    ::_exit(kDone);
  } catch (const std::bad_alloc&) {
    ::_exit(kNoMemory);
  } catch (const std::exception& error) {
    const std::string_view message = error.what();
    [[maybe_unused]] const ssize_t written =
        ::write(messages, message.data(), std::min<std::size_t>(message.size(), PIPE_BUF));
    ::_exit(kRunFails);
  }
}

struct Worker {
  std::size_t job = 0;
  int messages = -1;  // to read
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  bool is_late = false;
};

class WorkerPool {
 public:
  WorkerPool(const WorkerLimits& limits, const WorkerJobs& jobs) : limits_(limits), jobs_(jobs) {}
  ~WorkerPool() {  // those that are left when an exception or a signal ends the run
    for (const auto& [process, worker] : workers_) ::kill(process, SIGKILL);
    for (const auto& [process, worker] : workers_) {
      ::waitpid(process, nullptr, 0);
      ::close(worker.messages);
    }
  }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int run() {
    if (const int signal = run_all(); signal != 0) return signal;
    for (is_last_try_ = true; !failed_.empty(); failed_.pop_back()) {
      start(failed_.back());
      if (const int signal = wait(); signal != 0) return signal;
    }
    return 0;
  }

 private:
  int run_all() {
    bool more = true;
    while (more || !workers_.empty()) {
      while (more && workers_.size() < static_cast<std::size_t>(limits_.processes)) {
        const std::optional<std::size_t> job = jobs_.next();
        more = job.has_value();
        if (job) start(*job);
      }
      if (workers_.empty()) break;
      if (const int signal = wait(); signal != 0) return signal;
    }
    return 0;
  }

  void start(std::size_t job) {
    std::array<int, 2> pipe = {};
    if (::pipe2(pipe.data(), O_CLOEXEC) != 0)
      throw std::system_error(errno, std::generic_category(), "no pipe to a worker");
    const pid_t self = ::getpid();
    const pid_t process = ::fork();
    if (process < 0) {
      const int reason = errno;
      ::close(pipe[0]);
      ::close(pipe[1]);
      throw std::system_error(reason, std::generic_category(), "no worker can be started");
    }
    if (process == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != self) ::_exit(kRunFails);
      ::signal(SIGINT, SIG_IGN);  // of a terminal: the pool decides
      signals_.restore();
      be_worker(limits_, jobs_, job, pipe[1]);
    }
    ::close(pipe[1]);
    workers_[process] = {.job = job, .messages = pipe[0]};
  }

  // Until a worker has ended, or a signal has come.
  int wait() {
    const std::size_t before = workers_.size();
    while (workers_.size() == before) {
      const std::vector<pid_t> ended = poll_workers();
      if (const int signal = signals_.take(); signal != 0) return signal;
      if (jobs_.meanwhile) jobs_.meanwhile();
      end_late_workers();
      for (const pid_t process : ended) {
        int status = W_EXITCODE(1, 0);
        ::waitpid(process, &status, 0);
        reap(process, status);
      }
    }
    return 0;
  }

  // Sleeps until something happens, or it is time to look. A worker that ends closes its pipe.
  std::vector<pid_t> poll_workers() const {
    std::vector<pollfd> files = {{signals_.file(), POLLIN, 0}};
    for (const auto& [process, worker] : workers_) files.push_back({worker.messages, 0, 0});
    constexpr int kLateWorkersMs = 100;
    int timeout_ms = limits_.seconds > 0 ? kLateWorkersMs : -1;
    if (jobs_.meanwhile) timeout_ms = static_cast<int>(jobs_.period.count());
    ::poll(files.data(), files.size(), timeout_ms);
    std::vector<pid_t> ended;
    std::size_t file = 1;
    for (const auto& [process, worker] : workers_)
      if (files[file++].revents != 0) ended.push_back(process);
    return ended;
  }

  void end_late_workers() {
    const std::chrono::duration<double> limit(limits_.seconds);
    const auto now = std::chrono::steady_clock::now();
    for (auto& [process, worker] : workers_) {
      if (limits_.seconds <= 0 || worker.is_late || now - worker.start <= limit) continue;
      worker.is_late = true;
      ::kill(process, SIGKILL);
    }
  }

  void reap(pid_t process, int status) {
    const auto found = workers_.find(process);
    if (found == workers_.end()) return;
    const Worker worker = found->second;
    workers_.erase(found);
    std::array<char, PIPE_BUF> text;
    const ssize_t length = ::read(worker.messages, text.data(), text.size());
    ::close(worker.messages);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kDone) return jobs_.ended(worker.job, "");
    if (WIFEXITED(status) && WEXITSTATUS(status) == kRunFails)
      throw std::runtime_error(
          std::string(text.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0))));
    if (worker.is_late)
      return jobs_.ended(worker.job, fmt::format("it takes longer than {} s (--time-limit)",
                                                 limits_.seconds));
    if (is_last_try_) return jobs_.ended(worker.job, failure_of(status));
    failed_.push_back(worker.job);
  }

  std::string failure_of(int status) const {
    if (WIFSIGNALED(status))
      return fmt::format("its process was ended by signal {} ({})", WTERMSIG(status),
                         ::strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) == kNoMemory)
      return fmt::format("it needs more memory than {}, which a process may take (--memory)",
                         format_byte_size(limits_.memory_bytes));
    return fmt::format("its process ended with status {}", WEXITSTATUS(status));
  }

  const WorkerLimits& limits_;
  const WorkerJobs& jobs_;
  const SignalWatch signals_;
  std::map<pid_t, Worker> workers_;
  std::vector<std::size_t> failed_;
  bool is_last_try_ = false;
};

}  // namespace

int run_in_processes(const WorkerLimits& limits, const WorkerJobs& jobs) {
  return WorkerPool(limits, jobs).run();
}

}  // namespace tenon::command
