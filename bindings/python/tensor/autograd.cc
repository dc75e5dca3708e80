// Gradients: what a tensor knows of them, backward, hooks, functions of one's own.
#include "gil.h"
#include "tenon/autograd/autograd.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <atomic>
#include <map>

#include "allocators.h"
#include "callbacks.h"
#include "lasting_allocator.h"
#include "parts.h"
#include "tenon/autograd/forward_mode.h"
#include "tenon/autograd/gradcheck.h"
#include "tenon/autograd/record.h"
#include "tenon/base/error.h"

namespace tenon::python {
namespace {

using autograd::HookHandle;
using autograd::NodePtr;

// --- Nodes and hooks as objects.

struct GraphNode {
  NodePtr node;
};

void bind_nodes(nb::module_& module) {
  nb::class_<GraphNode>(module, "Node", "A recorded call.")
      .def_prop_ro("name", [](const GraphNode& n) { return autograd::node_name(n.node); },
                   "The operator.")
      .def_prop_ro("next_functions", [](const GraphNode& n) {
        nb::list next;
        for (const NodePtr& node : autograd::next_nodes(n.node))
          next.append(node ? nb::cast(GraphNode{node}) : nb::none());
        return next;
      }, "Where the gradients go; None where none is needed.")
      .def("__repr__", [](const GraphNode& n) {
        return fmt::format("<tenon Node {}>", autograd::node_name(n.node));
      });
  nb::class_<HookHandle>(module, "HookHandle", "A hook that was registered.")
      .def("remove", &HookHandle::remove, "Takes the hook away. Harmless the second time.");
}

autograd::TensorHook tensor_hook(nb::handle function) {
  return [held = hold(function)](const Tensor& gradient) {
    return in_python([&] {
      const nb::object result = (*held)(wrap(gradient));
      if (result.is_none()) return Tensor();
      if (!is_tensor(result.ptr())) refuse_type("a hook", "a tensor or None as the result", result);
      return tensor_of(result);
    });
  };
}

// --- Properties and methods of Tensor.

template <typename F, typename... Extra>
void method(const char* name, F&& function, const Extra&... extra) {
  nb::handle type = reinterpret_cast<PyObject*>(tensor_class);
  nb::cpp_function_def(std::forward<F>(function), nb::scope(type), nb::name(name), nb::is_method(),
                       extra...);
}

void check_callable(nb::handle function, const char* what) {
  if (PyCallable_Check(function.ptr()) == 0) refuse_type(what, "a function", function);
}

void bind_properties() {
  nb::handle type = reinterpret_cast<PyObject*>(tensor_class);
  auto bound = nb::borrow<nb::class_<Tensor>>(type);
  bound
      .def_prop_rw("requires_grad", &Tensor::requires_grad,
                   [](const Tensor& t, bool on) { t.set_requires_grad(on); },
                   "Whether gradients of this tensor are wanted.")
      .def_prop_rw("grad", [](const Tensor& t) { return wrap(t.grad()); },
                   [](const Tensor& t, nb::handle gradient) {
                     autograd::set_grad(t, gradient.is_none() ? Tensor() : tensor_of(gradient));
                   }, nb::for_setter(nb::arg("gradient").none()),
                   nb::for_getter(nb::sig("def grad(self) -> Tensor | None")),
                   nb::for_setter(nb::sig("def grad(self, gradient: Tensor | None, /) -> None")),
                   "The gradient that backward left; None before.")
      .def_prop_rw("data", [](const Tensor& t) { return wrap(t.data()); },
                   [](const Tensor& t, const Tensor& source) { t.set_data(source); },
                   nb::for_setter(nb::sig("def data(self, source: Tensor, /) -> None")),
                   "The same values, which autograd does not watch.")
      .def_prop_ro("is_leaf", [](const Tensor& t) { return autograd::is_leaf(t); },
                   "Made by the program rather than by a recorded call.")
      .def_prop_ro("retains_grad", [](const Tensor& t) { return autograd::retains_grad(t); },
                   "Whether backward keeps the gradient although this is no leaf.")
      .def_prop_ro("grad_fn", [](const Tensor& t) -> nb::object {
        NodePtr node = autograd::grad_fn(t);
        return node ? nb::cast(GraphNode{std::move(node)}) : nb::none();
      }, nb::sig("def grad_fn(self) -> Node | None"), "The call that made it; None for a leaf.");
}

autograd::BackwardOptions backward_options(bool retain_graph, bool create_graph) {
  autograd::BackwardOptions options;
  options.retain_graph = retain_graph;
  options.create_graph = create_graph;
  return options;
}

std::vector<Tensor> optional_tensors(nb::handle given, const char* what) {
  return given.is_none() ? std::vector<Tensor>() : tensors_of(given, what);
}

void bind_methods() {
  bind_properties();
  method("requires_grad_", [](nb::handle self, bool on) {
    tensor_of(self).set_requires_grad(on);
    return again(self);
  }, nb::arg("requires_grad") = true, "Sets requires_grad and returns the tensor.");
  method("detach", [](const Tensor& t) { return wrap(t.detach()); },
         "The same elements, without gradient.");
  method("retain_grad", [](const Tensor& t) { autograd::retain_grad(t); },
         "Backward keeps the gradient although this is no leaf.");
  method("backward", [](const Tensor& t, nb::handle gradient, bool retain, bool create) {
    const Tensor root = t;
    const Tensor given = gradient.is_none() ? Tensor() : tensor_of(gradient);
    const WithoutGil release;
    autograd::backward(root, given, backward_options(retain, create));
  }, nb::arg("gradient") = nb::none(), nb::arg("retain_graph") = false,
         nb::arg("create_graph") = false,
         "Adds to the grad of every leaf that this tensor depends on.");
  method("register_hook", [](const Tensor& t, nb::handle function) {
    check_callable(function, "register_hook");
    return autograd::register_hook(t, tensor_hook(function));
  }, nb::arg("hook"), "hook(gradient) runs in backward; a tensor that it returns takes its place.");
  method("register_post_accumulate_grad_hook", [](const Tensor& t, nb::handle function) {
    check_callable(function, "register_post_accumulate_grad_hook");
    return autograd::register_post_accumulate_hook(t, [held = hold(function)](const Tensor& leaf) {
      in_python([&] { (*held)(wrap(leaf)); });
    });
  }, nb::arg("hook"), "hook(leaf) runs after the leaf's grad was added to.");
}

// --- Functions of one's own.

// A call whose derivative is Python's.
class PythonNode final : public autograd::VariadicNode {
 public:
  explicit PythonNode(Held derivative) : derivative_(std::move(derivative)) {}

  const char* name() const override { return "python_function"; }
  // Called with a lock held: what Python keeps goes with the node.
  void release_saved() override { used_.store(true); }
  void backward(const autograd::BackwardCall& call) override {
    if (used_.load())
      throw InvalidArgument(
          "backward: the graph was used up; give retain_graph=True the first time");
    const std::vector<Tensor> found = in_python(
        [&] { return tensors_of((*derivative_)(wrap(call.grad())), "Function.backward"); });
    if (found.size() != edges().size())
      throw InvalidArgument(
          fmt::format("Function.backward: {} gradients for {} arguments of forward; give one for "
                      "each, None where there is none",
                      found.size(), edges().size()));
    for (std::size_t i = 0; i < found.size(); ++i)
      if (call.wants(i)) call.out[i] = found[i];
  }

 private:
  const Held derivative_;
  std::atomic<bool> used_{false};
};

// result = forward's; `arguments` may hold anything; derivative(gradient) gives one gradient for
// each argument.
nb::object apply(nb::handle forward, nb::handle derivative, const nb::args& arguments) {
  bool wanted = false;
  for (nb::handle one : arguments)
    wanted |= is_tensor(one.ptr()) && autograd::needs_grad(tensor_of(one));
  nb::object result;
  {
    const NoGradGuard none;
    result = forward(*arguments);
  }
  if (!is_tensor(result.ptr()))
    refuse_type("Function.forward", "one tensor as the result (a node has one output)", result);
  if (!wanted || !autograd::recording()) return result;
  auto node = make_intrusive<PythonNode>(hold(derivative));
  node->make_edges(arguments.size());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const nb::object one = arguments[i];
    if (is_tensor(one.ptr()) && autograd::needs_grad(tensor_of(one)))
      node->edges()[i] = autograd::gradient_edge(tensor_of(one));
  }
  Tensor made(tensor_of(result).impl()->shallow_copy(true, true));
  autograd::attach_history(made, node);
  if (autograd::forward_depth() != 0) autograd::copy_tangents(tensor_of(result), made);
  return wrap(made);
}

// --- Functions of the module.

void bind_walks(nb::module_& module) {
  module.def("backward", [](nb::handle tensors, nb::handle gradients, bool retain, bool create) {
    const auto roots = tensors_of(tensors, "backward");
    const auto given = optional_tensors(gradients, "backward");
    const WithoutGil release;
    autograd::backward(std::span(roots), std::span(given), backward_options(retain, create));
  }, nb::arg("tensors"), nb::arg("grad_tensors") = nb::none(), nb::arg("retain_graph") = false,
             nb::arg("create_graph") = false, "Adds to the grad of every leaf that they depend on.");
  module.def("grad", [](nb::handle outputs, nb::handle inputs, nb::handle gradients, bool retain,
                        bool create, bool allow_unused) {
    autograd::GradOptions options;
    options.retain_graph = retain;
    options.create_graph = create;
    options.allow_unused = allow_unused;
    const auto of = tensors_of(outputs, "grad");
    const auto by = tensors_of(inputs, "grad");
    const auto given = optional_tensors(gradients, "grad");
    std::vector<Tensor> found;
    {
      const WithoutGil release;
      found = autograd::grad(std::span(of), std::span(by), std::span(given), options);
    }
    return nb::tuple(wrap_all(found));
  }, nb::arg("outputs"), nb::arg("inputs"), nb::arg("grad_outputs") = nb::none(),
             nb::arg("retain_graph") = false, nb::arg("create_graph") = false,
             nb::arg("allow_unused") = false, "The gradients of the inputs alone; no grad changes.");
  module.def("checkpoint", [](nb::handle f, const nb::args& inputs) {
    check_callable(f, "checkpoint");
    const auto given = tensors_of(inputs, "checkpoint");
    const auto made = autograd::checkpoint(tensor_function(f, "checkpoint"), std::span(given));
    return made.size() == 1 ? wrap(made[0]) : nb::object(nb::tuple(wrap_all(made)));
  }, "f(*inputs) without what its nodes save: backward runs f again. For tensors alone.");
  module.def("jvp", [](nb::handle f, nb::handle inputs, nb::handle tangents) {
    const auto at = tensors_of(inputs, "jvp");
    const auto along = tensors_of(tangents, "jvp");
    const auto [values, derivatives] =
        autograd::jvp(tensor_function(f, "jvp"), std::span(at), std::span(along));
    return nb::make_tuple(nb::tuple(wrap_all(values)), nb::tuple(wrap_all(derivatives)));
  }, nb::arg("f"), nb::arg("inputs"), nb::arg("tangents"),
             "f(*inputs) and its derivative along the tangents, by forward mode.");
  const auto check = [&](const char* name, auto run, const char* about) {
    module.def(name, [run](nb::handle f, nb::handle inputs, double step, double atol, double rtol) {
      const auto at = tensors_of(inputs, "gradcheck");
      autograd::GradcheckOptions options;
      options.step = step;
      options.atol = atol;
      options.rtol = rtol;
      const std::string wrong = run(tensor_function(f, "gradcheck"), std::span(at), options);
      if (!wrong.empty()) throw InvalidArgument(wrong);
      return true;
    }, nb::arg("f"), nb::arg("inputs"), nb::arg("step") = 1e-6, nb::arg("atol") = 1e-5,
               nb::arg("rtol") = 1e-3, about);
  };
  check("gradcheck", &autograd::gradcheck,
        "True where derivatives are those of central differences; else ValueError.");
  check("gradgradcheck", &autograd::gradgradcheck, "The same for the gradients themselves.");
  module.def("_apply", &apply, nb::arg("forward"), nb::arg("derivative"), nb::arg("args"));
}

// --- Settings of a thread.

// An allocator that what is saved may be moved to. The graph names it until it goes, so it lives as
// long as the process.
Allocator& lasting(PythonAllocator& allocator) {
  static std::map<PythonAllocator::Core*, LastingAllocator>& known =
      *new std::map<PythonAllocator::Core*, LastingAllocator>;
  const auto [at, made] = known.try_emplace(allocator.core().get(), allocator.allocator(),
                                            allocator.core());
  return at->second;
}

Guard hooks_guard(nb::handle pack, nb::handle unpack) {
  check_callable(pack, "saved_tensors_hooks");
  check_callable(unpack, "saved_tensors_hooks");
  return Guard([packer = hold(pack), unpacker = hold(unpack)] {
    return std::make_shared<autograd::SavedTensorHooks>(
        [packer](const Tensor& saved) {
          return in_python(
              [&] { return std::static_pointer_cast<void>(hold((*packer)(wrap(saved)))); });
        },
        [unpacker](const autograd::SavedTensorHooks::Packed& packed) {
          return in_python([&] {
            const nb::object result = (*unpacker)(*std::static_pointer_cast<nb::object>(packed));
            if (!is_tensor(result.ptr()))
              refuse_type("saved_tensors_hooks", "a tensor from unpack", result);
            return tensor_of(result);
          });
        });
  });
}

void bind_settings(nb::module_& module) {
  module.def("watch_views", [](const Tensor& base) { autograd::watch_views(base); }, nb::arg("base"),
             "For a tensor without gradient: views that are made afterwards take part when values "
             "that need a gradient are written through them, or into the tensor.");
  module.def("is_grad_enabled", &grad_enabled, "Whether calls on this thread are recorded.");
  module.def("is_inference_mode_enabled", &in_inference_mode, "Whether inference mode is on.");
  module.def("_grad_guard", [](bool on) {
    return Guard([on] { return std::make_shared<GradModeGuard>(on); });
  }, nb::arg("on"));
  module.def("_inference_guard", [](bool on) {
    return Guard([on] { return std::make_shared<InferenceMode>(on); });
  }, nb::arg("on"));
  module.def("anomaly_mode", [](bool check_forward) {
    return Guard([=] { return std::make_shared<autograd::AnomalyMode>(check_forward); });
  }, nb::arg("check_forward") = false, "The first NaN in a gradient names the call that made it. Slow.");
  module.def("recompute_cheap", [](bool on) {
    return Guard([on] { return std::make_shared<autograd::RecomputeCheap>(on); });
  }, nb::arg("on") = true, "Results of cheap calls are made again instead of being kept.");
  module.def("saved_tensors_hooks", &hooks_guard, nb::arg("pack"), nb::arg("unpack"),
             "pack(tensor) for each tensor that is kept for backward, unpack(packed) for its values.");
  module.def("offload_saved", [](PythonAllocator& allocator, std::size_t min_bytes) {
    Allocator& target = lasting(allocator);
    return Guard([&target, min_bytes] {
      return std::make_shared<autograd::OffloadSaved>(target, min_bytes);
    });
  }, nb::arg("allocator"), nb::arg("min_bytes") = 0,
             nb::sig("def offload_saved(allocator: tenon._core.Allocator, min_bytes: int = 0) -> Guard"),
             "What is kept for backward waits in an allocator's memory, which lives as long as the process.");
}

}  // namespace

void bind_autograd(nb::module_& module) {
  bind_nodes(module);
  bind_callbacks(module);
  bind_methods();
  bind_walks(module);
  bind_settings(module);
}

}  // namespace tenon::python
