#include "work.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "gil.h"
#include "tenon/base/interruption.h"

namespace tenon::python {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(50);

// What the worker says to the thread that waits for it.
struct Board {
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  bool fresh = false;  // a report that was not passed on yet
  double share = -1;
  std::string step;
  std::exception_ptr failure;
  std::atomic<bool> stop = false;

  void work(const std::function<void(const Report&)>& job) {
    const StopScope scope(&stop);
    const Report report = [this](double new_share, std::string new_step) {
      stop_if_asked();
      const std::lock_guard lock(mutex);
      share = new_share;
      step = std::move(new_step);
      fresh = true;
    };
    std::exception_ptr thrown;
    try {
      job(report);
    } catch (...) {
      thrown = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    failure = thrown;
    done = true;
    ended.notify_one();
  }
};

// What is in progress, for the interpreter's end. Needs the GIL.
std::vector<Board*> boards;
bool is_ending = false;

// While `board` is in progress.
class InProgress {
 public:
  explicit InProgress(Board& board) : board_(board) { boards.push_back(&board); }
  ~InProgress() { std::erase(boards, &board_); }
  InProgress(const InProgress&) = delete;
  InProgress& operator=(const InProgress&) = delete;

 private:
  Board& board_;
};

struct News {
  bool done = false;
  bool fresh = false;
  double share = -1;
  std::string step;
};

News wait_for_news(Board& board) {
  const WithoutGil release;
  std::unique_lock lock(board.mutex);
  board.ended.wait_for(lock, kBetweenLooks, [&] { return board.done; });
  return {board.done, std::exchange(board.fresh, false), board.share, board.step};
}

void tell(nb::handle progress, const News& news) {
  if (is_ending) throw std::runtime_error("the interpreter ends");
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  if (progress.is_none() || !news.fresh) return;
  const nb::object share = news.share < 0 ? nb::object(nb::none()) : nb::float_(news.share);
  progress(share, nb::str(news.step.data(), news.step.size()));
}

}  // namespace

void run_interruptible(nb::handle progress, const std::function<void(const Report&)>& job) {
  if (!progress.is_none() && PyCallable_Check(progress.ptr()) == 0)
    throw nb::type_error("progress: give a function of (share, step), or None");
  if (is_ending) throw std::runtime_error("the interpreter ends");
  Board board;
  const InProgress in_progress(board);
  std::thread worker([&] { board.work(job); });
  std::exception_ptr refused;  // what Python raised meanwhile
  for (bool done = false; !done;) {
    const News news = wait_for_news(board);
    done = news.done;
    if (refused) continue;
    try {
      tell(progress, news);
    } catch (...) {
      refused = std::current_exception();
      board.stop = true;
    }
  }
  worker.join();
  if (refused) std::rethrow_exception(refused);
  if (board.failure) std::rethrow_exception(board.failure);
}

void end_work_with_the_interpreter() {
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
    is_ending = true;
    for (Board* board : boards) board->stop = true;
    while (!boards.empty()) {
      const WithoutGil release;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }));
  // A forked child does not have the other threads.
  nb::module_::import_("os").attr("register_at_fork")(
      nb::arg("after_in_child") = nb::cpp_function([] { boards.clear(); }));
}

}  // namespace tenon::python
