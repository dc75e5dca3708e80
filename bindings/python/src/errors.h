// Tenon's exceptions as Python's.
#pragma once

#include <nanobind/nanobind.h>

namespace tenon::python {

// Throws ImportError outside the main interpreter: classes are the process's.
void refuse_subinterpreters();

// Adds the exception classes to the module and has C++ exceptions raised as them.
void bind_errors(nanobind::module_& module);

}  // namespace tenon::python
