// The parts of tenon._tensor.
#pragma once

#include <nanobind/nanobind.h>

namespace tenon::python {

void bind_tensor(nanobind::module_& module);
void bind_functions(nanobind::module_& module);
void bind_training(nanobind::module_& module);  // gradients and optimisers

}  // namespace tenon::python
