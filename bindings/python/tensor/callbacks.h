// Python functions that C++ keeps and calls, on any thread, and guards as context managers.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "arguments.h"

namespace tenon::python {

// A Python object that C++ holds: copied without the GIL, let go of with it.
using Held = std::shared_ptr<nb::object>;
Held hold(nb::handle object);

// What a callback gave: one tensor, or a sequence of tensors and None. Throws TypeError, naming
// `what`, for anything else.
std::vector<Tensor> tensors_of(nb::handle result, const char* what);

// f(*inputs) as C++ calls it. Takes the GIL.
std::function<std::vector<Tensor>(std::span<const Tensor>)> tensor_function(nb::handle f,
                                                                            const char* what);

// A C++ guard for Python's `with`. Guards end on the thread that began them, the last begun first;
// __exit__ raises RuntimeError for another order.
class Guard {
 public:
  using Make = std::function<std::shared_ptr<void>()>;
  explicit Guard(Make make) : make_(std::move(make)) {}
  ~Guard();
  void enter();
  void exit();

 private:
  const Make make_;
  std::shared_ptr<void> made_;
};

void bind_callbacks(nb::module_& module);

}  // namespace tenon::python
