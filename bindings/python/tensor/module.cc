// tenon._tensor: tensors, operators, gradients, optimisers. tenon.tensors is their public form.
#include "module.h"

#include "errors.h"

NB_MODULE(_tensor, module) {
  using namespace tenon::python;
  refuse_subinterpreters();
  module.doc() = "Tenon's tensors; use the package tenon.tensors.";
  bind_errors(module);
  bind_tensor(module);
  bind_functions(module);
  bind_training(module);
}
