#include "gil.h"

#include <unistd.h>

#include <chrono>
#include <thread>

namespace tenon::python {
namespace {

// Of this module; both need the GIL.
int sections = 0;  // that are without the GIL briefly
bool forking = false;

// In a function of their own: the destructors that call them may let no exception out.
[[gnu::noinline]] void take(PyThreadState* state) {
  try {
    PyEval_RestoreThread(state);
  } catch (const abi::__forced_unwind&) {
    stay();
  }
}

// When the interpreter has ended, only the thread that ended it still has a state.
[[gnu::noinline]] PyGILState_STATE take_on_any_thread() {
  if (Py_IsInitialized() == 0 && PyGILState_GetThisThreadState() == nullptr) stay();
  try {
    return PyGILState_Ensure();
  } catch (const abi::__forced_unwind&) {
    stay();
  }
}

void before_fork() {
  forking = true;
  while (sections != 0) {
    const WithoutGil wait;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void after_fork() { forking = false; }

}  // namespace

void stay() {
  for (;;) ::pause();
}

WithoutGil::~WithoutGil() { take(state_); }

BrieflyWithoutGil::BrieflyWithoutGil() {
  if (forking) return;
  ++sections;
  state_ = PyEval_SaveThread();
}

BrieflyWithoutGil::~BrieflyWithoutGil() {
  if (state_ == nullptr) return;
  take(state_);
  --sections;
}

WithGil::WithGil() : state_(take_on_any_thread()) {}

void watch_forks() {
  const nb::object after = nb::cpp_function(&after_fork);
  nb::module_::import_("os").attr("register_at_fork")(
      nb::arg("before") = nb::cpp_function(&before_fork), nb::arg("after_in_parent") = after,
      nb::arg("after_in_child") = after);
}

}  // namespace tenon::python
