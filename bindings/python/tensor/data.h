// Tensors from Python's data, and back.
#pragma once

#include "arguments.h"

namespace tenon::python {

// A tensor of a number, nested lists, a tensor, an object with __dlpack__ or the buffer protocol.
// `copy`: null copies where it has to; True always; False never (ValueError where it would have
// to). Throws TypeError for other objects.
Tensor tensor_from(nb::handle data, std::optional<DType> dtype, std::optional<Device> device,
                   std::optional<bool> copy);
// The memory of an object with __dlpack__.
Tensor from_dlpack_object(nb::handle object, std::optional<bool> copy);

// One element, as a Python number.
nb::object python_number(const Scalar& value);
// Nested lists; a number for a tensor without dimensions.
nb::object to_list(const Tensor& tensor);

// Of the class, as raw slots.
int get_buffer(PyObject* self, Py_buffer* view, int flags);
void release_buffer(PyObject* self, Py_buffer* view);
nb::object to_dlpack_object(const Tensor& tensor, nb::handle stream, nb::handle max_version,
                            nb::handle device, nb::handle copy);
nb::object to_numpy(nb::handle self);

void bind_data(nb::module_& module);

}  // namespace tenon::python
