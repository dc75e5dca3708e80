// Devices, allocators, scopes and recorders for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace tenon::python {

void bind_devices(nanobind::module_& module);
void bind_allocators(nanobind::module_& module);
void bind_scopes(nanobind::module_& module);  // and recording

}  // namespace tenon::python
