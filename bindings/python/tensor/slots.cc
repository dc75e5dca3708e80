#include "slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <vector>

#include "data.h"
#include "tenon/autograd/autograd.h"
#include "tenon/base/error.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/promotion.h"

namespace tenon::python {
namespace {

thread_local std::exception_ptr pending;
PyObject* rethrow = nullptr;  // a bound function, so that every exception is translated in one place

PyObject* not_implemented() {
  Py_INCREF(Py_NotImplemented);
  return Py_NotImplemented;
}

// What a sign gives for an operand that is neither a tensor nor a number: an array of NumPy's is
// refused here, since NumPy would take the tensor for an element.
PyObject* refuse_operand(PyObject* a, PyObject* b) {
  PyObject* const other = is_tensor(a) ? b : a;
  if (PyObject_HasAttrString(other, "__array_interface__") == 0) return not_implemented();
  PyErr_SetString(PyExc_TypeError,
                  "a tensor and an array of NumPy in one operation: tenon.asarray(array) shares its "
                  "memory, tensor.numpy() the tensor's");
  return nullptr;
}

std::int64_t elements_of(const Tensor& a, const Tensor& b) {
  return std::max(a.numel(), b.numel());
}

template <const ops::BinaryOperator& op>
PyObject* binary_slot(PyObject* a, PyObject* b) {
  try {
    Operand left, right;
    if (!operand_from(a, left.tensor) || !operand_from(b, right.tensor))
      return refuse_operand(a, b);
    return new_tensor(worked(elements_of(left.tensor, right.tensor),
                             [&] { return op(left.tensor, right.tensor); }));
  } catch (...) {
    return raise_current();
  }
}

template <const ops::BinaryIntoOperator& op>
PyObject* in_place_slot(PyObject* a, PyObject* b) {
  try {
    const Tensor self = tensor_of(a);
    Operand right;
    if (!operand_from(b, right.tensor)) return refuse_operand(a, b);
    worked(elements_of(self, right.tensor), [&] { op(self, self, right.tensor); });
    Py_INCREF(a);
    return a;
  } catch (...) {
    return raise_current();
  }
}

template <const ops::UnaryOperator& op>
PyObject* unary_slot(PyObject* a) {
  try {
    const Tensor self = tensor_of(a);
    return new_tensor(worked(self.numel(), [&] { return op(self); }));
  } catch (...) {
    return raise_current();
  }
}

// a << b and a >> b of integers, by products and quotients of 64 bits; from 64 places on nothing of
// a is left but its sign.
template <bool left>
Tensor shift(const Tensor& a, const Tensor& b) {
  const DType dtype = result_type(a, b);
  if (!is_integral(dtype))
    throw InvalidArgument(fmt::format("a shift is of integers, not of {} by {}",
                                      dtype_name(a.dtype()), dtype_name(b.dtype())));
  const Tensor wide = to(a, DType::kI64), places = to(b, DType::kI64);
  const Tensor two = scalar_tensor(2, DType::kI64);
  const Tensor low = ops::pow(two, ops::clamp(places, 0, 62));
  const Tensor high = ops::pow(two, ops::clamp(ops::sub(places, 62), 0, 62));
  const Tensor shifted = left ? ops::mul(ops::mul(wide, low), high)
                              : ops::floor_divide(ops::floor_divide(wide, low), high);
  return to(shifted, dtype);
}

template <bool left>
PyObject* shift_slot(PyObject* a, PyObject* b) {
  try {
    Operand value, places;
    if (!operand_from(a, value.tensor) || !operand_from(b, places.tensor))
      return refuse_operand(a, b);
    return new_tensor(worked(elements_of(value.tensor, places.tensor),
                             [&] { return shift<left>(value.tensor, places.tensor); }));
  } catch (...) {
    return raise_current();
  }
}

PyObject* positive(PyObject* self) {
  Py_INCREF(self);
  return self;
}

PyObject* power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) return not_implemented();
  return binary_slot<ops::op::pow>(a, b);
}
PyObject* power_in_place(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) return not_implemented();
  return in_place_slot<ops::op::pow_into>(a, b);
}

PyObject* matmul(PyObject* a, PyObject* b) {
  try {
    if (!is_tensor(a) || !is_tensor(b)) return refuse_operand(a, b);
    const Tensor left = tensor_of(a), right = tensor_of(b);
    return new_tensor(
        worked(elements_of(left, right), [&] { return ops::matmul(left, right); }));
  } catch (...) {
    return raise_current();
  }
}

PyObject* compare(PyObject* a, PyObject* b, int operation) {
  switch (operation) {
    case Py_EQ:
      return binary_slot<ops::op::eq>(a, b);
    case Py_NE:
      return binary_slot<ops::op::ne>(a, b);
    case Py_LT:
      return binary_slot<ops::op::lt>(a, b);
    case Py_LE:
      return binary_slot<ops::op::le>(a, b);
    case Py_GT:
      return binary_slot<ops::op::gt>(a, b);
    default:
      return binary_slot<ops::op::ge>(a, b);
  }
}

Py_hash_t hash(PyObject* self) {
  try {
    const auto address = reinterpret_cast<std::uintptr_t>(tensor_of(self).impl());
    return static_cast<Py_hash_t>(address >> 4);
  } catch (...) {
    raise_current();
    return -1;
  }
}

// ------------------------------------------------------------------------------------------------
// Numbers

const Tensor& single(PyObject* self) {
  const Tensor& tensor = tensor_of(self);
  if (tensor.numel() != 1)
    throw InvalidArgument(fmt::format(
        "a tensor of shape {} is no single number: item(), any() or all() of it may be meant",
        to_string(tensor.sizes())));
  return tensor;
}

int truth(PyObject* self) {
  try {
    return single(self).item().to<bool>() ? 1 : 0;
  } catch (...) {
    raise_current();
    return -1;
  }
}

template <bool only_integers>
PyObject* as_integer(PyObject* self) {
  try {
    const Tensor& tensor = single(self);
    if (is_complex(tensor.dtype()) ||
        (only_integers && (!is_integral(tensor.dtype()) || tensor.dim() != 0)))
      throw nb::type_error(fmt::format("a tensor of {} and shape {} is no integer",
                                       dtype_name(tensor.dtype()), to_string(tensor.sizes()))
                               .c_str());
    const nb::object number = python_number(tensor.item());
    return PyNumber_Long(number.ptr());
  } catch (...) {
    return raise_current();
  }
}

PyObject* as_float(PyObject* self) {
  try {
    const Tensor& tensor = single(self);
    if (is_complex(tensor.dtype())) throw nb::type_error("a complex number is no float: complex()");
    return PyFloat_FromDouble(tensor.item().to<double>());
  } catch (...) {
    return raise_current();
  }
}

// ------------------------------------------------------------------------------------------------
// Rows

Py_ssize_t length(PyObject* self) {
  try {
    const Tensor& tensor = tensor_of(self);
    if (tensor.dim() == 0) throw nb::type_error("a tensor without dimensions has no length");
    return static_cast<Py_ssize_t>(tensor.size(0));
  } catch (...) {
    raise_current();
    return -1;
  }
}

int contains(PyObject* self, PyObject* value) {
  try {
    const Tensor tensor = tensor_of(self);
    Operand wanted;
    if (!operand_from(value, wanted.tensor)) return 0;
    return worked(tensor.numel(), [&] { return ops::any(ops::eq(tensor, wanted.tensor)); })
                   .item()
                   .to<bool>()
               ? 1
               : 0;
  } catch (...) {
    raise_current();
    return -1;
  }
}

PyObject* iterate(PyObject* self) {
  try {
    const Tensor& tensor = tensor_of(self);
    if (tensor.dim() == 0) throw nb::type_error("iteration over a tensor without dimensions");
    return PyObject_GetIter(wrap_all(tensor.unbind(0)).ptr());
  } catch (...) {
    return raise_current();
  }
}

template <typename F>
void* slot(F* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

PyObject* raise_current() {
  pending = std::current_exception();
  PyObject* result = PyObject_CallObject(rethrow, nullptr);
  pending = nullptr;
  return result;
}

void prepare_slots() {
  rethrow = nb::cpp_function([] { std::rethrow_exception(pending); }).release().ptr();
}

PyType_Slot* tensor_slots() {
  using namespace ops::op;
  static PyType_Slot slots[] = {
      {Py_nb_add, slot(&binary_slot<add>)},
      {Py_nb_subtract, slot(&binary_slot<sub>)},
      {Py_nb_multiply, slot(&binary_slot<mul>)},
      {Py_nb_true_divide, slot(&binary_slot<div>)},
      {Py_nb_floor_divide, slot(&binary_slot<floor_divide>)},
      {Py_nb_remainder, slot(&binary_slot<remainder>)},
      {Py_nb_power, slot(&power)},
      {Py_nb_and, slot(&binary_slot<bitwise_and>)},
      {Py_nb_or, slot(&binary_slot<bitwise_or>)},
      {Py_nb_xor, slot(&binary_slot<bitwise_xor>)},
      {Py_nb_lshift, slot(&shift_slot<true>)},
      {Py_nb_rshift, slot(&shift_slot<false>)},
      {Py_nb_matrix_multiply, slot(&python::matmul)},
      {Py_nb_inplace_add, slot(&in_place_slot<add_into>)},
      {Py_nb_inplace_subtract, slot(&in_place_slot<sub_into>)},
      {Py_nb_inplace_multiply, slot(&in_place_slot<mul_into>)},
      {Py_nb_inplace_true_divide, slot(&in_place_slot<div_into>)},
      {Py_nb_inplace_floor_divide, slot(&in_place_slot<floor_divide_into>)},
      {Py_nb_inplace_remainder, slot(&in_place_slot<remainder_into>)},
      {Py_nb_inplace_power, slot(&power_in_place)},
      {Py_nb_inplace_and, slot(&in_place_slot<bitwise_and_into>)},
      {Py_nb_inplace_or, slot(&in_place_slot<bitwise_or_into>)},
      {Py_nb_inplace_xor, slot(&in_place_slot<bitwise_xor_into>)},
      {Py_nb_negative, slot(&unary_slot<neg>)},
      {Py_nb_positive, slot(&positive)},
      {Py_nb_absolute, slot(&unary_slot<abs>)},
      {Py_nb_invert, slot(&unary_slot<bitwise_not>)},
      {Py_nb_bool, slot(&truth)},
      {Py_nb_int, slot(&as_integer<false>)},
      {Py_nb_index, slot(&as_integer<true>)},
      {Py_nb_float, slot(&as_float)},
      {Py_tp_richcompare, slot(&compare)},
      {Py_tp_hash, slot(&hash)},
      {Py_tp_iter, slot(&iterate)},
      {Py_sq_contains, slot(&contains)},
      {Py_mp_length, slot(&length)},
      {Py_mp_subscript, slot(&get_item)},
      {Py_mp_ass_subscript, slot(&set_item)},
      {Py_bf_getbuffer, slot(&get_buffer)},
      {Py_bf_releasebuffer, slot(&release_buffer)},
      {0, nullptr}};
  return slots;
}

}  // namespace tenon::python
