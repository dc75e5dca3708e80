#include "errors.h"

#include <string>
#include <string_view>
#include <typeinfo>

#include "tenon/base/error.h"
#include "tenon/base/interruption.h"
#include "tenon/base/printable.h"

namespace tenon::python {
namespace {

namespace nb = nanobind;

// The classes, for as long as the process lives.
struct Classes {
  PyObject* parse_error = nullptr;
  PyObject* out_of_memory = nullptr;
  PyObject* invalid_pointer = nullptr;
  PyObject* device_error = nullptr;
  PyObject* internal_error = nullptr;
};
Classes classes;

PyObject* add_class(nb::module_& module, const char* name, PyObject* base, const char* about) {
  const std::string full = std::string("tenon.") + name;
  PyObject* made = PyErr_NewExceptionWithDoc(full.c_str(), about, base, nullptr);
  if (made == nullptr) throw nb::python_error();
  module.attr(name) = nb::handle(made);
  return made;
}

// A message may name what a file holds, which need not be UTF-8.
nb::str text(std::string_view message) {
  return nb::steal<nb::str>(PyUnicode_DecodeUTF8(
      message.data(), static_cast<Py_ssize_t>(message.size()), "replace"));
}

// Nor need a message be fit for a terminal.
void raise(PyObject* type, const char* message) {
  PyErr_SetObject(type, text(one_line(message)).ptr());
}

// An instance with the numbers as attributes.
void raise_out_of_memory(const OutOfMemory& error) {
  const OutOfMemoryDetails& details = error.details();
  nb::object made = nb::handle(classes.out_of_memory)(text(error.what()));
  made.attr("allocator") = text(details.allocator);
  made.attr("device") = text(details.device);
  made.attr("advice") = text(details.advice);
  made.attr("requested_bytes") = nb::int_(details.requested_bytes);
  made.attr("allocated_bytes") = nb::int_(details.allocated_bytes);
  made.attr("reserved_bytes") = nb::int_(details.reserved_bytes);
  made.attr("limit_bytes") = nb::int_(details.limit_bytes);
  made.attr("largest_free_bytes") = nb::int_(details.largest_free_bytes);
  PyErr_SetObject(classes.out_of_memory, made.ptr());
}

void raise_parse_error(const ParseError& error) {
  nb::object made = nb::handle(classes.parse_error)(text(error.what()));
  made.attr("name") = text(error.name());
  made.attr("line") = nb::int_(error.line());
  made.attr("column") = nb::int_(error.column());
  made.attr("reason") = text(error.reason());
  PyErr_SetObject(classes.parse_error, made.ptr());
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const OutOfMemory& error) {
    raise_out_of_memory(error);
  } catch (const ParseError& error) {
    raise_parse_error(error);
  } catch (const InvalidArgument& error) {
    raise(PyExc_ValueError, error.what());
  } catch (const InvalidPointer& error) {
    raise(classes.invalid_pointer, error.what());
  } catch (const DeviceError& error) {
    raise(classes.device_error, error.what());
  } catch (const InternalError& error) {
    raise(classes.internal_error, error.what());
  } catch (const Interrupted&) {
    raise(PyExc_KeyboardInterrupt, "");
  } catch (const std::bad_cast&) {  // nanobind's, of an object that came as any
    raise(PyExc_TypeError, "an argument is of a type that this call does not take, or a str that "
                           "UTF-8 cannot write");
  }
}

}  // namespace

void refuse_subinterpreters() {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0)
    throw nb::import_error("tenon is for the main interpreter, not for subinterpreters");
}

void bind_errors(nb::module_& module) {
  classes.parse_error = add_class(
      module, "ParseError", PyExc_ValueError,
      "A file that cannot be read.\n\nAttributes: name, line, column (from 1; 0 where the "
      "format has none), reason.");
  classes.out_of_memory =
      add_class(module, "OutOfMemoryError", PyExc_MemoryError,
                "A request that an allocator could not meet.\n\nAttributes: allocator, device, "
                "requested_bytes, allocated_bytes,\nreserved_bytes, limit_bytes (0: none), "
                "largest_free_bytes, advice.");
  classes.invalid_pointer = add_class(module, "InvalidPointerError", PyExc_RuntimeError,
                                      "Memory that this allocator did not hand out.");
  classes.device_error = add_class(module, "DeviceError", PyExc_RuntimeError,
                                   "A driver call that failed for another reason than memory.");
  classes.internal_error =
      add_class(module, "InternalError", PyExc_RuntimeError, "A bug in Tenon itself.");
  nb::register_exception_translator(&translate);
}

}  // namespace tenon::python
