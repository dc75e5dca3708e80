// The interpreter's lock (GIL), given up and taken again.
//
// Note [Threads that the interpreter ends]: until Python 3.14, CPython ends a daemon thread that
// wants the GIL while the interpreter ends, by pthread_exit. That unwinds the thread's stack, and a
// destructor or catch (...) on it aborts the process. So such a thread stays where it is until the
// process has ended, as from Python 3.14 on.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>

#include <utility>

namespace tenon::python {

namespace nb = nanobind;

// Until the process has ended.
[[noreturn]] void stay();

// Without the GIL while it lives, for long work.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

// The same for work that holds locks of allocators and calls no Python: os.fork() waits until it is
// done, since a child has no thread that would release them. Meanwhile new work keeps the GIL.
class BrieflyWithoutGil {
 public:
  BrieflyWithoutGil();
  ~BrieflyWithoutGil();
  BrieflyWithoutGil(const BrieflyWithoutGil&) = delete;
  BrieflyWithoutGil& operator=(const BrieflyWithoutGil&) = delete;

 private:
  PyThreadState* state_ = nullptr;  // null: it keeps the GIL
};
// Once in each module that uses the class above. Requires the GIL.
void watch_forks();

// Takes the GIL on any thread.
class WithGil {
 public:
  WithGil();
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  const PyGILState_STATE state_;
};

// Calls what runs Python, with the GIL, from a thread that may not have it.
template <typename Call>
auto in_python(Call&& call) {
  const WithGil gil;
  try {
    return std::forward<Call>(call)();
  } catch (const abi::__forced_unwind&) {
    stay();
  }
}

}  // namespace tenon::python
