// tenon._tensor: tensors, operators, gradients, training. It stands on the memory layer inside
// tenon._core, so that both have the same allocators.
#include "data.h"
#include "errors.h"
#include "gil.h"
#include "parts.h"
#include "tenon/base/version.h"

NB_MODULE(_tensor, module) {
  using namespace tenon::python;
  nanobind::module_::import_("tenon._core");  // which translates the errors

  module.doc() = "Tenon's compiled tensors; use the package tenon.";
  module.attr("__version__") = TENON_VERSION;
  bind_dtypes(module);
  bind_class(module);
  bind_data(module);
  bind_creation(module);
  bind_elements(module);
  bind_functions(module);
  bind_autograd(module);
  bind_layers(module);
  bind_training(module);
  watch_forks();
}
