// Parts of the class tenon.Tensor that are written against Python's C interface: signs, indexing,
// buffers. Each is called for every operation, and costs a third of what a bound function does.
#pragma once

#include "arguments.h"

namespace tenon::python {

// The slots of Tensor, ended by a zero.
PyType_Slot* tensor_slots();
// Makes what slots need at run time; call it once, when the module is made.
void prepare_slots();

// Raises the exception being handled as Python's; always null. Call it in a catch block.
PyObject* raise_current();

// x[key] and x[key] = value.
PyObject* get_item(PyObject* self, PyObject* key);
int set_item(PyObject* self, PyObject* key, PyObject* value);

}  // namespace tenon::python
