// Gradients and optimisers.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <utility>

#include "convert.h"
#include "module.h"
#include "tenon/autograd/autograd.h"
#include "tenon/autograd/grad_mode.h"
#include "tenon/base/error.h"
#include "tenon/nn/optimizer.h"

namespace tenon::python {
namespace {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

std::vector<nn::NamedTensor> named(const NamedTensors& parameters) {
  std::vector<nn::NamedTensor> list;
  for (const auto& [name, tensor] : parameters) list.push_back({name, tensor});
  return list;
}

template <typename Optimizer, typename Options>
std::unique_ptr<nn::Optimizer> make(const NamedTensors& parameters, const Options& options) {
  return std::make_unique<Optimizer>(named(parameters), options);
}

void bind_optimizers(nb::module_& module) {
  nb::class_<nn::Optimizer>(module, "Optimizer")
      .def(
          "step", [](nn::Optimizer& self, double scale) { self.step(scale); },
          nb::arg("gradient_scale") = 1.0, nb::call_guard<nb::gil_scoped_release>())
      .def("zero_grad", &nn::Optimizer::zero_grad)
      .def_prop_rw("lr", &nn::Optimizer::learning_rate, &nn::Optimizer::set_learning_rate)
      .def("state",
           [](const nn::Optimizer& self) {
             NamedTensors state;
             for (const nn::NamedTensor& one : self.named_state())
               state.emplace_back(one.name, one.tensor);
             return state;
           })
      .def("updates", &nn::Optimizer::updates)
      .def("set_updates", [](nn::Optimizer& self, const std::vector<std::uint64_t>& updates) {
        self.set_updates(updates);
      });
  module.def("sgd", [](const NamedTensors& parameters, double lr, double momentum, double dampening,
                       double weight_decay, bool nesterov) {
    return make<nn::Sgd>(parameters,
                         nn::SgdOptions{lr, momentum, dampening, weight_decay, nesterov});
  });
  module.def("adam", [](const NamedTensors& parameters, double lr, std::pair<double, double> betas,
                        double eps, double weight_decay, bool decoupled) {
    return make<nn::Adam>(
        parameters, nn::AdamOptions{lr, betas.first, betas.second, eps, weight_decay, decoupled});
  });
  module.def("clip_factor", [](const NamedTensors& parameters, double limit) {
    const double norm = nn::gradient_norm(named(parameters));
    return std::make_pair(norm, nn::clip_factor(norm, limit));
  });
}

}  // namespace

void bind_training(nb::module_& module) {
  module.def("grad_enabled", &grad_enabled);
  // As torch.set_grad_enabled: returns what it was.
  module.def("set_grad_enabled",
             [](bool enabled) { return std::exchange(autograd::detail::grad_mode, enabled); });
  module.def(
      "grad",
      [](const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
         const std::vector<Tensor>& grad_outputs, bool retain_graph, bool create_graph) {
        const nb::gil_scoped_release release;
        return autograd::grad(outputs, inputs, grad_outputs,
                              {.retain_graph = retain_graph, .create_graph = create_graph});
      },
      nb::arg("outputs"), nb::arg("inputs"), nb::arg("grad_outputs"),
      nb::arg("retain_graph") = false, nb::arg("create_graph") = false);
  bind_optimizers(module);
}

}  // namespace tenon::python
