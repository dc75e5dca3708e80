// tenon._core: recordings, answers, memory and the command. The package's Python files give them
// their public form.
#include <nanobind/nanobind.h>

#include "array.h"
#include "command.h"
#include "errors.h"
#include "gil.h"
#include "memory.h"
#include "recording.h"
#include "rows.h"
#include "tenon/base/version.h"
#include "work.h"

NB_MODULE(_core, module) {
  using namespace tenon::python;
  refuse_subinterpreters();
  nanobind::set_leak_warnings(false);  // what a program still holds at its end is no fault
  module.doc() = "Tenon's compiled part; use the package tenon.";
  module.attr("version") = TENON_VERSION;
  bind_errors(module);
  bind_rows(module);
  bind_recording(module);
  bind_answers(module);
  bind_array(module);
  bind_devices(module);
  bind_allocators(module);
  bind_scopes(module);
  bind_command(module);
  end_work_with_the_interpreter();
  watch_forks();
}
