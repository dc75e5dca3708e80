// A model of threads that share memory: every interleaving of a few of them, step by step.
#pragma once

#include <linux/membarrier.h>
#include <ucontext.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <vector>

namespace tenon::stepped {

using Value = std::uintptr_t;

// Where a value lies that several threads see. Created while a scenario is set up.
struct Location {
  explicit Location(Value initial);
  Location(const Location&) = delete;
  Location& operator=(const Location&) = delete;
  Value value;
  std::uint32_t number;
};

struct Result {
  std::string failure;  // empty: no execution failed
  std::size_t executions = 0;
  std::size_t states = 0;  // different ones
};

// Runs the threads of a scenario in fibers, one step at a time. A step is one access to a Location.
// All choices of the next step are tried, depth first. Where a state comes a second time, what
// follows is not tried again. A state is the scenario's memory, the threads' stores on their way,
// and what each thread has read: its own next step follows from that.
//
// Memory model: a thread's stores wait in a buffer of its own. They reach memory in any order,
// except that stores to one place stay in order, and a release store comes after all earlier ones.
// The thread itself reads its own stores. A read-modify-write acts on memory at once, after what it
// must come after. A sequentially consistent store, and a barrier, empty the buffer. Loads are not
// reordered. So the model covers x86 and shows a missing release elsewhere, and no missing acquire.
class Stepper {
 public:
  static constexpr std::size_t kMostThreads = 3;

  // Scenario: kThreads, run(thread), finish(). finish runs at the end of each execution.
  template <typename Scenario>
  static Result explore() {
    Stepper stepper(sizeof(Scenario), Scenario::kThreads);
    stepper.construct_ = [](void* at) { new (at) Scenario; };
    stepper.run_ = [](void* at, std::size_t thread) { static_cast<Scenario*>(at)->run(thread); };
    stepper.finish_ = [](void* at) { static_cast<Scenario*>(at)->finish(); };
    stepper.explore_all();
    return stepper.result_;
  }

  // --- For what runs in the fibers. `current` is the one of the exploration that goes on.
  static Stepper& current() { return *current_; }
  Value load(Location& at);
  void store(Location& at, Value value, std::memory_order order);
  // Returns the earlier value; `next` returns false where nothing is to be stored.
  template <typename Next>
  Value read_modify_write(Location& at, std::memory_order order, Next&& next) {
    step();
    if (is_inside()) flush(order == std::memory_order_acquire || order == std::memory_order_relaxed
                               ? &at : nullptr);
    const Value before = at.value;
    next(before, at.value);
    note(at.number, before);
    return before;
  }
  void barrier_on_every_thread();
  // The caller looks at the place that it loaded last until another value is there.
  void wait();
  // Something that is not a Location but decides what a thread does: part of its state.
  void note(std::uint64_t what, Value value);
  // The caller, which is at `place`, has nothing in its variables that decides what it does: its
  // reads until here are no part of the state.
  void forget(std::size_t place) {
    threads_[running_].history = 0;
    note(0, place);
  }
  std::size_t thread() const { return running_; }
  bool is_inside() const { return running_ != kMain; }
  // Ends the exploration.
  void fail(const std::string& what);

 private:
  friend struct Location;
  static constexpr std::size_t kMain = ~std::size_t{0};
  static constexpr std::size_t kStackBytes = 64 << 10;

  struct Store {
    Location* at;
    Value value;
    bool release;
  };
  struct Thread {
    ucontext_t context = {};
    std::unique_ptr<char[]> stack;
    bool finished = false;
    bool waits = false;
    Location* last = nullptr;  // what it loaded, and found there
    Value last_value = 0;
    std::uint64_t history = 0;  // a hash
    std::vector<Store> buffer;
  };
  struct Action {
    std::size_t thread;
    std::size_t store;  // of its buffer; kRun: the thread's next step
  };
  static constexpr std::size_t kRun = ~std::size_t{0};
  struct Choice {
    std::size_t taken;
    std::size_t options;
  };

  Stepper(std::size_t scenario_bytes, std::size_t threads);
  ~Stepper() { current_ = nullptr; }
  void explore_all();
  bool next_choices();
  void execute();
  static void fiber();

  void step();
  // Which thread goes on; kMain: the execution is over.
  std::size_t pick();
  const std::vector<Action>& possible_actions();
  bool may_drain(const Thread& thread, std::size_t store) const;
  void drain(Thread& thread, std::size_t store);
  // The caller's own stores: those to `at`, or all where that is null.
  void flush(const Location* at);
  Value visible(const Thread& thread, const Location& at) const;
  std::uint64_t state() const;
  void switch_to(std::size_t thread);

  static inline Stepper* current_ = nullptr;
  std::function<void(void*)> construct_, finish_;
  std::function<void(void*, std::size_t)> run_;
  const std::size_t scenario_bytes_;
  const std::unique_ptr<char[]> scenario_;
  std::vector<Thread> threads_;
  std::vector<Action> actions_;  // which are possible
  ucontext_t main_ = {};
  std::size_t running_ = kMain;
  std::uint32_t locations_ = 0;
  std::size_t depth_ = 0;
  std::vector<Choice> choices_;
  std::unordered_set<std::uint64_t> seen_;
  Result result_;
};

// --- What stands for the library's in the code under test.

template <typename T>
Value to_value(T value) {
  if constexpr (std::is_pointer_v<T>)
    return reinterpret_cast<Value>(value);
  else
    return static_cast<Value>(value);
}
template <typename T>
T from_value(Value value) {
  if constexpr (std::is_pointer_v<T>)
    return reinterpret_cast<T>(value);
  else
    return static_cast<T>(value);
}

template <typename T>
class Atomic {
 public:
  Atomic(T initial) : at_(to_value(initial)) {}  // NOLINT: as std::atomic's

  T load(std::memory_order) const { return from_value<T>(Stepper::current().load(at_)); }
  operator T() const { return load(std::memory_order_seq_cst); }
  Atomic& operator=(T value) {
    store(value, std::memory_order_seq_cst);
    return *this;
  }
  void store(T value, std::memory_order order) {
    Stepper::current().store(at_, to_value(value), order);
  }
  T exchange(T value, std::memory_order order = std::memory_order_seq_cst) {
    return from_value<T>(Stepper::current().read_modify_write(
        at_, order, [&](Value, Value& to) { to = to_value(value); }));
  }
  bool compare_exchange_weak(T& expected, T value, std::memory_order order, std::memory_order) {
    const Value wanted = to_value(expected);
    const Value before = Stepper::current().read_modify_write(at_, order, [&](Value is, Value& to) {
      if (is == wanted) to = to_value(value);
    });
    expected = from_value<T>(before);
    return before == wanted;
  }

 private:
  mutable Location at_;
};

// Plain memory that threads pass to each other: a race shows as a value that is too old.
template <typename T>
class Cell {
 public:
  Cell(T initial) : at_(to_value(initial)) {}  // NOLINT: as a plain member
  operator T() const { return from_value<T>(Stepper::current().load(at_)); }
  Cell& operator=(T value) {
    Stepper::current().store(at_, to_value(value), std::memory_order_relaxed);
    return *this;
  }
  Cell& operator=(const Cell& other) { return *this = static_cast<T>(other); }

 private:
  mutable Location at_;
};

// Plain memory of the code under test that its lock guards. Reading it is no step.
template <typename T>
class Plain {
 public:
  Plain(T initial) : value_(initial) {}  // NOLINT: as a plain member
  operator T() const {
    Stepper::current().note(0, to_value(value_));
    return value_;
  }
  Plain& operator=(T value) {
    value_ = value;
    return *this;
  }
  T operator++() { return *this = static_cast<T>(*this + 1); }

 private:
  T value_;
};

inline void require(bool holds, const char* what) {
  if (!holds) Stepper::current().fail(what);
}

// A condition variable. A wait with a limit may be over at any time. Requires: a thread that waits
// has nothing in its variables that decides what it does.
class Condition {
 public:
  void notify_all() {
    Stepper::current().read_modify_write(notices_, std::memory_order_seq_cst,
                                         [](Value before, Value& after) { after = before + 1; });
  }
  template <typename Lock, typename Holds>
  void wait(Lock& lock, Holds&& holds) {
    for (;;) {
      Stepper::current().forget(kWaits);
      if (holds()) return;
      const Value before = Stepper::current().load(notices_);
      lock.unlock();
      while (Stepper::current().load(notices_) == before) Stepper::current().wait();
      lock.lock();
    }
  }
  template <typename Lock, typename Period, typename Holds>
  bool wait_for(Lock& lock, const Period&, Holds&& holds) {
    Stepper::current().forget(kWaitsAWhile);
    if (holds()) return true;
    lock.unlock();
    Stepper::current().forget(kWaitsAWhile + 1);
    lock.lock();
    Stepper::current().forget(kWaitsAWhile + 2);
    return holds();
  }

 private:
  static constexpr std::size_t kWaits = 100, kWaitsAWhile = 101;  // places that no scenario names
  Location notices_{0};
};

// A thread that another one starts: the scenario has a thread that calls serve().
class Thread {
 public:
  void start(std::function<void()> work) {
    require(!joinable_, "a second thread was started");
    work_ = std::move(work);
    joinable_ = true;
    started_ = true;
  }
  bool joinable() const { return joinable_; }
  void join() {
    while (!ended_) Stepper::current().wait();
  }
  void serve() {
    while (!started_) Stepper::current().wait();
    work_();
    ended_ = true;
  }

 private:
  std::function<void()> work_;
  Plain<bool> joinable_ = false;
  Atomic<bool> started_ = false;
  Atomic<bool> ended_ = false;
};

// Names the calling thread.
inline const void* mark() {
  static constexpr std::array<char, Stepper::kMostThreads> kMarks{};
  return &kMarks[Stepper::current().thread()];
}

// membarrier(2).
inline long system_call(long, int command, int, int) {
  if (command == MEMBARRIER_CMD_PRIVATE_EXPEDITED) Stepper::current().barrier_on_every_thread();
  return 0;
}

}  // namespace tenon::stepped
