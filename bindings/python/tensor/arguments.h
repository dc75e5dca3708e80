// What Python passes to tensor functions, and how it becomes C++: one caster for each kind.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <optional>
#include <utility>
#include <vector>

#include "gil.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/indexing.h"
#include "tenon/tensor/int_list.h"
#include "tenon/tensor/tensor.h"

namespace tenon::python {

namespace nb = nanobind;

// --- Tensors as Python objects.

// The class tenon.Tensor; set when it is bound.
extern PyTypeObject* tensor_class;

// What a call of Python's made. Throws the error that the call set where there is none.
inline nb::object made_object(PyObject* object) {
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

inline bool is_tensor(PyObject* object) {
  return Py_TYPE(object) == tensor_class || PyObject_TypeCheck(object, tensor_class) != 0;
}
// Throws TypeError for an object that Tensor.__init__ never filled.
Tensor& tensor_of(nb::handle object);
// A tensor as a Python object: what functions return.
class TensorObject : public nb::object {
  NB_OBJECT(TensorObject, nb::object, "tenon._tensor.Tensor", is_tensor)
};

// A new object around the tensor; None for an undefined one.
PyObject* new_tensor(Tensor tensor);
inline TensorObject wrap(Tensor tensor) {
  return nb::steal<TensorObject>(new_tensor(std::move(tensor)));
}
// The same object once more.
inline TensorObject again(nb::handle self) { return nb::borrow<TensorObject>(self); }
using TensorObjects = nb::typed<nb::list, TensorObject>;
TensorObjects wrap_all(const std::vector<Tensor>& tensors);

// --- Arguments.

// A tensor, or a number that counts as a plain one in type promotion.
struct Operand {
  Tensor tensor;
};
// A number of any kind: Python's, or NumPy's scalars.
struct Number {
  Scalar value = 0;
};
// A length, or a sequence of lengths.
struct Sizes {
  DimVector list;
  operator IntList() const { return list; }
};
struct DTypeName {
  DType value = DType::kF32;
};
struct DeviceName {
  Device value;
};
struct TensorList {
  std::vector<Tensor> list;
};
// None, or one of the above; nanobind's own std::optional lets no error through.
template <typename T>
struct Maybe {
  std::optional<T> given;
  explicit operator bool() const { return given.has_value(); }
  const T& operator*() const { return *given; }
  const T* operator->() const { return &*given; }
};

// Each returns false, without an error set, for an object of another kind, and throws for one of
// the kind that cannot be taken (an integer of more than 64 bits, a dtype that is not known).
bool number_from(PyObject* object, Scalar& value);
bool operand_from(PyObject* object, Tensor& value);
bool sizes_from(PyObject* object, DimVector& value);
// The same where all is plain: an int, or a tuple of ints, of 64 bits. Else false, with some of the
// sizes in `value`, and never an error.
bool plain_sizes_from(PyObject* object, DimVector& value);
bool dtype_from(PyObject* object, DType& value);
bool device_from(PyObject* object, Device& value);
bool tensors_from(PyObject* object, std::vector<Tensor>& value);
bool is_dtype(PyObject* object);
class DTypeHandle : public nb::object {
  NB_OBJECT(DTypeHandle, nb::object, "tenon._tensor.dtype", is_dtype)
};
// The object that stands for a dtype: one for each, as long as the process lives.
DTypeHandle dtype_object(DType dtype);

// Runs f without the GIL where the elements are worth the two switches.
template <typename F>
auto worked(std::int64_t elements, F&& f) {
  constexpr std::int64_t kWorthReleasing = 1 << 15;
  if (elements < kWorthReleasing) return f();
  const BrieflyWithoutGil release;
  return f();
}

// What an error of an argument's kind throws: TypeError for a misuse of Python, ValueError
// (InvalidArgument) for values.
[[noreturn]] void refuse_type(const char* what, const char* wanted, nb::handle given);

void bind_dtypes(nb::module_& module);

}  // namespace tenon::python

namespace nanobind::detail {

#define TENON_CASTER(type, from, member, name)                                      \
  template <>                                                                       \
  struct type_caster<tenon::python::type> {                                         \
    NB_TYPE_CASTER(tenon::python::type, const_name(name))                           \
    bool from_python(handle source, std::uint8_t, cleanup_list*) {                  \
      return tenon::python::from(source.ptr(), value.member);                       \
    }                                                                               \
    static handle from_cpp(const tenon::python::type&, rv_policy, cleanup_list*) {  \
      return handle();                                                              \
    }                                                                               \
  };
TENON_CASTER(Operand, operand_from, tensor, "tenon._typing.Operand")
TENON_CASTER(Number, number_from, value, "complex")
TENON_CASTER(Sizes, sizes_from, list, "tenon._typing.Shape")
TENON_CASTER(DTypeName, dtype_from, value, "tenon._typing.DTypeLike")
TENON_CASTER(DeviceName, device_from, value, "str")
TENON_CASTER(TensorList, tensors_from, list, "collections.abc.Sequence[tenon._tensor.Tensor]")
#undef TENON_CASTER

template <typename T>
struct type_caster<tenon::python::Maybe<T>> {
  NB_TYPE_CASTER(tenon::python::Maybe<T>, make_caster<T>::Name)
  bool from_python(handle source, std::uint8_t flags, cleanup_list* cleanup) {
    if (source.is_none()) return true;
    make_caster<T> inner;
    if (!inner.from_python(source, flags, cleanup)) return false;
    value.given.emplace(inner.operator cast_t<T>());
    return true;
  }
  static handle from_cpp(const tenon::python::Maybe<T>&, rv_policy, cleanup_list*) {
    return handle();
  }
};

}  // namespace nanobind::detail
