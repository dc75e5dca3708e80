#pragma once

#include <nanobind/nanobind.h>

namespace tenon::python {

namespace nb = nanobind;

// run_command(arguments) -> exit status.
void bind_command(nb::module_& module);

}  // namespace tenon::python
