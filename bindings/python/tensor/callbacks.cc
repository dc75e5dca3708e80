#include "callbacks.h"
#include "gil.h"

#include <stdexcept>

namespace tenon::python {

Held hold(nb::handle object) {
  return Held(new nb::object(nb::borrow(object)), [](nb::object* held) {
    if (Py_IsInitialized() == 0) return;  // the process ends, and its memory with it
    in_python([&] { delete held; });
  });
}

std::vector<Tensor> tensors_of(nb::handle result, const char* what) {
  std::vector<Tensor> tensors;
  const auto take = [&](nb::handle one) {
    if (one.is_none())
      tensors.emplace_back();
    else if (is_tensor(one.ptr()))
      tensors.push_back(tensor_of(one));
    else
      refuse_type(what, "a tensor, or a tuple of tensors and None, as the result", one);
  };
  if (PyTuple_Check(result.ptr()) != 0 || PyList_Check(result.ptr()) != 0)
    for (nb::handle one : nb::borrow<nb::sequence>(result)) take(one);
  else
    take(result);
  return tensors;
}

std::function<std::vector<Tensor>(std::span<const Tensor>)> tensor_function(nb::handle f,
                                                                            const char* what) {
  return [held = hold(f), what](std::span<const Tensor> inputs) {
    return in_python([&] {
      nb::list arguments;
      for (const Tensor& input : inputs) arguments.append(wrap(input));
      return tensors_of((*held)(*nb::tuple(arguments)), what);
    });
  };
}

namespace {
thread_local std::vector<const Guard*> open_guards;
}

Guard::~Guard() {
  // Was never ended: its order cannot be shown to be right, so it stays.
  if (made_ != nullptr) static_cast<void>(new std::shared_ptr<void>(std::move(made_)));
}

void Guard::enter() {
  if (made_ != nullptr) throw std::runtime_error("this context is open already");
  made_ = make_();
  open_guards.push_back(this);
}

void Guard::exit() {
  if (made_ == nullptr) throw std::runtime_error("this context is not open");
  if (open_guards.empty() || open_guards.back() != this)
    throw std::runtime_error(
        "end this context on the thread that began it, and after those that were begun inside");
  open_guards.pop_back();
  made_.reset();
}

void bind_callbacks(nb::module_& module) {
  nb::class_<Guard>(module, "Guard", "A setting of this thread, for a with statement.")
      .def("__enter__",
           [](Guard& self) {
             self.enter();
             return nb::find(self);
           })
      .def(
          "__exit__", [](Guard& self, nb::handle, nb::handle, nb::handle) { self.exit(); },
          nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none());
}

}  // namespace tenon::python
