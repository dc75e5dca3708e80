// Training: modules written in C++, optimisers, schedules, files.
#include <fmt/format.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>

#include "callbacks.h"
#include "gil.h"
#include "parts.h"
#include "tenon/autograd/autograd.h"
#include "tenon/base/error.h"
#include "tenon/nn/models.h"
#include "tenon/nn/optimizer.h"
#include "tenon/nn/schedule.h"
#include "tenon/nn/state.h"
#include "tenon/tensor/interop/npy.h"
#include "tenon/tensor/interop/safetensors.h"

namespace tenon::python {
namespace {

// {"0.weight": tensor, ...} in Python's order.
std::vector<nn::NamedTensor> named_from(const nb::dict& tensors) {
  std::vector<nn::NamedTensor> named;
  for (const auto& [name, tensor] : tensors) {
    if (!nb::isinstance<nb::str>(name)) refuse_type("names of tensors", "text", name);
    named.push_back({nb::cast<std::string>(name), tensor_of(tensor)});
  }
  return named;
}

nb::dict dict_of(const std::vector<nn::NamedTensor>& named) {
  nb::dict made;
  for (const nn::NamedTensor& one : named) made[one.name.c_str()] = wrap(one.tensor);
  return made;
}

// ------------------------------------------------------------------------------------------------
// Modules

// Python's parameters and buffers as a module, for the functions that take one: a tree by the dots
// of the names.
class NamedState final : public nn::Module {
 public:
  void add(const std::string& name, const Tensor& tensor) {
    const std::size_t dot = name.find('.');
    if (dot == std::string::npos) {
      register_buffer(name, tensor);  // a parameter would begin to require its gradient
      return;
    }
    const std::string first = name.substr(0, dot);
    auto& inside = inside_[first];
    if (inside == nullptr) inside = register_module(first, std::make_shared<NamedState>());
    inside->add(name.substr(dot + 1), tensor);
  }
  Tensor forward(const Tensor& input) override { return input; }

 private:
  std::map<std::string, std::shared_ptr<NamedState>> inside_;
};

std::shared_ptr<NamedState> state_of(const nb::dict& parameters, const nb::dict& buffers) {
  auto state = std::make_shared<NamedState>();
  for (const nn::NamedTensor& one : named_from(parameters)) state->add(one.name, one.tensor);
  for (const nn::NamedTensor& one : named_from(buffers)) state->add(one.name, one.tensor);
  return state;
}

void bind_modules(nb::module_& module) {
  nb::class_<nn::Module>(module, "NativeModule", "A module written in C++.")
      .def("forward", [](nn::Module& m, const Tensor& input) {
        const Tensor x = input;
        Tensor result;
        {
          const WithoutGil release;
          result = m(x);
        }
        return wrap(result);
      }, nb::arg("input"), "Runs it.")
      .def("named_parameters", [](const nn::Module& m) { return dict_of(m.named_parameters()); },
           "Parameters by name.")
      .def("named_buffers", [](const nn::Module& m) { return dict_of(m.named_buffers()); },
           "Buffers by name.")
      .def("train", [](nn::Module& m, bool on) { m.train(on); }, nb::arg("mode") = true,
           "Dropout and batch normalisation behave differently in training.")
      .def("set_path", [](nn::Module& m, const std::string& path) { m.set_path(path); },
           nb::arg("path"), "What recordings call it.");
  module.def("_self_attention", [](std::int64_t width, std::int64_t heads, bool causal, double dropout) {
    return std::shared_ptr<nn::Module>(std::make_shared<nn::SelfAttention>(
        nn::AttentionOptions{width, heads, causal, dropout}));
  }, nb::arg("width"), nb::arg("heads"), nb::arg("causal"), nb::arg("dropout"));
  module.def("_transformer_block", [](std::int64_t width, std::int64_t heads, bool causal, double dropout) {
    return std::shared_ptr<nn::Module>(std::make_shared<nn::TransformerBlock>(
        nn::AttentionOptions{width, heads, causal, dropout}));
  }, nb::arg("width"), nb::arg("heads"), nb::arg("causal"), nb::arg("dropout"));
  module.def("_char_gpt", [](std::int64_t vocabulary, std::int64_t length, std::int64_t layers,
                             std::int64_t width, std::int64_t heads, double dropout,
                             std::int64_t checkpoints) {
    nn::GptOptions options{vocabulary, length, layers, width, heads, dropout};
    auto made = std::make_shared<nn::CharGpt>(options);
    made->set_checkpoints(checkpoints);
    return std::shared_ptr<nn::Module>(made);
  }, nb::arg("vocabulary"), nb::arg("length"), nb::arg("layers"), nb::arg("width"), nb::arg("heads"),
             nb::arg("dropout"), nb::arg("checkpoints"));
}

// ------------------------------------------------------------------------------------------------
// Optimisers

void bind_optimizers(nb::module_& module) {
  nb::class_<nn::Optimizer>(module, "NativeOptimizer", "An optimiser written in C++.")
      .def("step", [](nn::Optimizer& o, double scale) {
        const WithoutGil release;
        o.step(scale);
      }, nb::arg("gradient_scale") = 1.0, "Updates every parameter that has a gradient.")
      .def("zero_grad", &nn::Optimizer::zero_grad, "Lets every gradient go.")
      .def_prop_rw("lr", &nn::Optimizer::learning_rate, &nn::Optimizer::set_learning_rate, "The learning rate.")
      .def("named_state", [](const nn::Optimizer& o) { return dict_of(o.named_state()); }, "Its tensors by name.")
      .def_prop_rw("updates", &nn::Optimizer::updates,
                   [](nn::Optimizer& o, const std::vector<std::uint64_t>& updates) { o.set_updates(updates); },
                   "How often each parameter was updated.")
      .def("updates_in_backward", [](std::shared_ptr<nn::Optimizer> o) {
        return Guard([o] {
          // The optimiser goes after what uses it.
          struct Both {
            explicit Both(std::shared_ptr<nn::Optimizer> kept) : optimizer(std::move(kept)), updates(*optimizer) {}
            std::shared_ptr<nn::Optimizer> optimizer;
            nn::UpdatesInBackward updates;
          };
          return std::make_shared<Both>(o);
        });
      }, "While it lasts, backward updates each parameter as soon as its gradient is whole.");
  module.def("_sgd", [](const nb::dict& parameters, double lr, double momentum, double dampening,
                        double weight_decay, bool nesterov) {
    return std::shared_ptr<nn::Optimizer>(std::make_shared<nn::Sgd>(
        named_from(parameters), nn::SgdOptions{lr, momentum, dampening, weight_decay, nesterov}));
  }, nb::arg("parameters"), nb::arg("lr"), nb::arg("momentum"), nb::arg("dampening"), nb::arg("weight_decay"), nb::arg("nesterov"));
  module.def("_adam", [](const nb::dict& parameters, double lr, double beta1, double beta2, double eps,
                         double weight_decay, bool decoupled) {
    return std::shared_ptr<nn::Optimizer>(std::make_shared<nn::Adam>(
        named_from(parameters), nn::AdamOptions{lr, beta1, beta2, eps, weight_decay, decoupled}));
  }, nb::arg("parameters"), nb::arg("lr"), nb::arg("beta1"), nb::arg("beta2"), nb::arg("eps"), nb::arg("weight_decay"), nb::arg("decoupled"));
  module.def("_gradient_norm", [](const nb::dict& parameters) {
    const auto named = named_from(parameters);
    const WithoutGil release;
    return nn::gradient_norm(named);
  }, nb::arg("parameters"));
  module.def("clip_factor", &nn::clip_factor, nb::arg("norm"), nb::arg("limit"),
             "What gradients must be multiplied with so that their norm is at most the limit.");
}

void bind_schedules(nb::module_& module) {
  nb::class_<nn::Schedule>(module, "Schedule", "The factor of the learning rate at a step, counted from 0.")
      .def("__call__", [](const nn::Schedule& schedule, std::uint64_t step) { return schedule(step); }, nb::arg("step"));
  module.def("constant_schedule", &nn::constant_schedule, "1 all the time.");
  module.def("step_schedule", &nn::step_schedule, nb::arg("every"), nb::arg("gamma"), "Multiplied by gamma after every so many steps.");
  module.def("cosine_schedule", &nn::cosine_schedule, nb::arg("steps"), nb::arg("floor") = 0.0, "Falls from 1 to the floor along half a cosine.");
  module.def("linear_schedule", &nn::linear_schedule, nb::arg("steps"), nb::arg("floor") = 0.0, "Falls from 1 to the floor along a line.");
  module.def("warmup_schedule", [](std::uint64_t warmup, const nn::Schedule& then) {
    return nn::warmup_schedule(warmup, then);
  }, nb::arg("warmup"), nb::arg("then"), "Up to 1 along a line, then another schedule.");
  module.def("one_cycle_schedule", &nn::one_cycle_schedule, nb::arg("steps"), "Up from 1 / 25, then down to 1e-4 / 25.");
}

// ------------------------------------------------------------------------------------------------
// Files

void bind_files(nb::module_& module) {
  module.def("_save_state", [](const std::string& path, const nb::dict& parameters, const nb::dict& buffers,
                               std::shared_ptr<nn::Optimizer> optimizer, const nn::Metadata& metadata) {
    nn::save_state(path, *state_of(parameters, buffers), optimizer.get(), metadata);
  }, nb::arg("path"), nb::arg("parameters"), nb::arg("buffers"), nb::arg("optimizer").none(), nb::arg("metadata"));
  module.def("_load_state", [](const std::string& path, const nb::dict& parameters, const nb::dict& buffers,
                               std::shared_ptr<nn::Optimizer> optimizer) {
    return nn::load_state(path, *state_of(parameters, buffers), optimizer.get());
  }, nb::arg("path"), nb::arg("parameters"), nb::arg("buffers"), nb::arg("optimizer").none());
  module.def("load_metadata", &nn::load_metadata, nb::arg("path"), "What a file of save_state says beside its tensors.");
  module.def("load_safetensors", [](const std::string& path) {
    const SafeTensors file = load_safetensors(path);
    nb::dict tensors;
    for (const auto& [name, tensor] : file.tensors) tensors[name.c_str()] = wrap(tensor);
    return nb::make_tuple(tensors, nb::cast(file.metadata));
  }, nb::arg("path"), "The tensors by name, views of the mapped file, and the metadata.");
  module.def("save_safetensors", [](const std::string& path, const nb::dict& tensors,
                                    const std::map<std::string, std::string>& metadata) {
    std::map<std::string, Tensor> named;
    for (const nn::NamedTensor& one : named_from(tensors)) named.emplace(one.name, one.tensor.detach());
    const WithoutGil release;
    save_safetensors(path, named, metadata);
  }, nb::arg("path"), nb::arg("tensors"), nb::arg("metadata") = nb::dict(), "Named tensors in one file.");
  module.def("load_npy", [](const std::string& path) { return wrap(load_npy(path)); }, nb::arg("path"), "NumPy's .npy.");
  module.def("save_npy", [](const std::string& path, const Tensor& tensor) { save_npy(path, tensor.detach()); },
             nb::arg("path"), nb::arg("tensor"), "NumPy's .npy.");
}

}  // namespace

void bind_training(nb::module_& module) {
  bind_modules(module);
  bind_optimizers(module);
  bind_schedules(module);
  bind_files(module);
}

}  // namespace tenon::python
