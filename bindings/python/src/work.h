// Long work for Python: the GIL is free meanwhile, Ctrl-C and the progress callback can end it.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <optional>
#include <string>
#include <type_traits>

namespace tenon::python {

namespace nb = nanobind;

// How far the work is: a share from 0 to 1, or less than 0 where it is not known, and what is being
// done. Called from any thread, one call at a time; the newest call counts.
using Report = std::function<void(double share, std::string step)>;

// Runs `job` on a thread of its own, without the GIL, and waits for it. Meanwhile the calling
// thread looks for signals and calls progress(share or None, step), 20 times a second at most. An
// exception from either (KeyboardInterrupt) asks the job to stop (base/interruption.h) and is
// thrown once it has; else what the job throws is thrown. `progress` may be None. Requires the GIL.
void run_interruptible(nb::handle progress, const std::function<void(const Report&)>& job);

// From here on, at the interpreter's end what threads have in progress raises RuntimeError, and so
// does new work. Else CPython would end daemon threads where they wait for the GIL, inside the calls
// above, and that aborts the process. Requires the GIL.
void end_work_with_the_interpreter();

template <typename Job>
auto interruptible(nb::handle progress, Job&& job) {
  std::optional<std::invoke_result_t<Job, const Report&>> result;
  run_interruptible(progress, [&](const Report& report) { result.emplace(job(report)); });
  return std::move(*result);
}

}  // namespace tenon::python
