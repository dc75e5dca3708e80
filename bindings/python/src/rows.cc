#include "rows.h"

namespace tenon::python {
namespace {

namespace nb = nanobind;

// One dimension of bytes: what they mean is a dtype's affair.
int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const Rows* rows = nb::inst_ptr<Rows>(self);
  static char nothing = 0;  // consumers want an address also for no bytes
  void* data = rows->count == 0 ? &nothing : const_cast<void*>(rows->data);
  return PyBuffer_FillInfo(view, self, data,
                           static_cast<Py_ssize_t>(rows->count * rows->item_bytes), 1, flags);
}

}  // namespace

void bind_rows(nb::module_& module) {
  static PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)},
                                {0, nullptr}};
  nb::class_<Rows>(module, "Rows", nb::type_slots(slots))
      .def("__len__", [](const Rows& rows) { return rows.count; })
      .def_prop_ro("item_bytes", [](const Rows& rows) { return rows.item_bytes; });
}

}  // namespace tenon::python
