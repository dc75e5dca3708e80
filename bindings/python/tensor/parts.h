// What the module tenon._tensor is made of.
#pragma once

#include "arguments.h"

namespace tenon::python {

void bind_class(nb::module_& module);      // Tensor: what it is, and its views
void bind_creation(nb::module_& module);   // fresh and random tensors
void bind_elements(nb::module_& module);   // element-wise functions
void bind_functions(nb::module_& module);  // reductions, order, choice, shape, products
void bind_layers(nb::module_& module);     // what models are made of, losses
void bind_autograd(nb::module_& module);   // gradients
void bind_training(nb::module_& module);   // modules in C++, optimisers, schedules, files

// The arguments of a call like view(2, 3) or view((2, 3)).
DimVector integers(const nb::args& arguments, const char* what);

// A function of the module and a method of Tensor at once; the tensor is the first argument.
template <typename F, typename... Extra>
void both(nb::module_& module, const char* name, F&& function, const Extra&... extra) {
  module.def(name, function, nb::arg("x"), extra...);
  nb::handle type = reinterpret_cast<PyObject*>(tensor_class);
  nb::cpp_function_def(std::forward<F>(function), nb::scope(type), nb::name(name), nb::is_method(),
                       extra...);
}

}  // namespace tenon::python
