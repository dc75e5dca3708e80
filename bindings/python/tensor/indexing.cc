// x[key] as NumPy and PyTorch have it.
#include <fmt/format.h>

#include <vector>

#include "data.h"
#include "slots.h"
#include "tenon/base/error.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/geometry.h"

namespace tenon::python {
namespace {

// A key, taken apart. Slices that go backwards are turned: `base` has their dimension sliced, and
// for reading reversed; `turned` names their dimensions in the result, for writing.
struct Key {
  Tensor base;
  std::vector<TensorIndex> indices;
  DimVector turned;
  bool has_tensor = false;
};

[[noreturn]] void refuse_index(const std::string& text) { throw nb::index_error(text.c_str()); }

std::optional<std::int64_t> bound_of(nb::handle value) {
  if (value.is_none()) return std::nullopt;
  // As Python's own slices: what is too large stands for the end.
  const Py_ssize_t number = PyNumber_AsSsize_t(value.ptr(), nullptr);
  if (number == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return number;
}

// How many dimensions of the base an entry takes.
std::int64_t dims_of(nb::handle entry) {
  if (entry.is_none() || PyBool_Check(entry.ptr()) != 0) return 0;
  if (is_tensor(entry.ptr())) {
    const Tensor& tensor = tensor_of(entry);
    return tensor.dtype() == DType::kBool ? tensor.dim() : 1;
  }
  return 1;
}

class KeyReader {
 public:
  KeyReader(const Tensor& base, bool writes) : writes_(writes) { key_.base = base; }

  Key read(PyObject* object) {
    std::vector<nb::object> entries;
    if (PyTuple_Check(object) != 0) {
      for (nb::handle entry : nb::borrow<nb::tuple>(object)) entries.push_back(prepared(entry));
    } else {
      entries.push_back(prepared(object));
    }
    std::int64_t taken = 0;
    int ellipses = 0;
    for (const nb::object& entry : entries) {
      if (entry.ptr() == Py_Ellipsis)
        ++ellipses;
      else
        taken += dims_of(entry);
    }
    if (ellipses > 1) refuse_index("an index has at most one ellipsis (...)");
    if (taken > key_.base.dim())
      refuse_index(fmt::format("{} indices for a tensor of shape {}", taken,
                               to_string(key_.base.sizes())));
    for (const nb::object& entry : entries) take(entry, taken);
    return std::move(key_);
  }

 private:
  // Lists, arrays and the like as tensors.
  static nb::object prepared(nb::handle entry) {
    PyObject* const object = entry.ptr();
    if (is_tensor(object) || entry.is_none() || object == Py_Ellipsis || PySlice_Check(object) ||
        PyBool_Check(object) != 0 || PyLong_Check(object) != 0)
      return nb::borrow(entry);
    if (PyList_Check(object) != 0 || PyTuple_Check(object) != 0 ||
        (nb::hasattr(entry, "ndim") && nb::cast<int>(entry.attr("ndim")) > 0)) {
      Tensor index = tensor_from(entry, std::nullopt, std::nullopt, std::nullopt);
      if (index.numel() == 0) index = to(index, DType::kI64);
      return wrap(index);
    }
    if (PyIndex_Check(object) != 0) return made_object(PyNumber_Index(object));
    refuse_index(fmt::format("an index is an integer, a slice, None, ..., a tensor or a list, not {}",
                             nb::str(entry.type().attr("__name__")).c_str()));
  }

  void take(const nb::object& entry, std::int64_t taken) {
    PyObject* const object = entry.ptr();
    if (entry.is_none()) {
      key_.indices.emplace_back(NewAxis());
      ++made_;
    } else if (object == Py_Ellipsis) {
      key_.indices.emplace_back(Ellipsis());
      const std::int64_t left = key_.base.dim() - inserted_ - taken;
      at_ += left;
      made_ += left;
    } else if (PySlice_Check(object) != 0) {
      take_slice(entry);
    } else if (PyBool_Check(object) != 0) {
      take_condition(scalar_tensor(object == Py_True, DType::kBool));
    } else if (is_tensor(object)) {
      take_tensor(tensor_of(entry));
    } else {
      take_number(object);
    }
  }

  void take_tensor(const Tensor& index) {
    if (!is_integral(index.dtype()) && index.dtype() != DType::kBool)
      refuse_index(fmt::format("an index tensor is of integers or bools, not {}",
                               dtype_name(index.dtype())));
    if (index.dtype() == DType::kBool && index.dim() == 0) return take_condition(index);
    key_.has_tensor = true;
    key_.indices.emplace_back(index);
    at_ += index.dtype() == DType::kBool ? index.dim() : 1;
  }

  // True or False: a new dimension that has one element or none.
  void take_condition(const Tensor& condition) {
    key_.base = key_.base.unsqueeze(at_++);
    ++inserted_;
    key_.indices.emplace_back(condition.unsqueeze(0));
    key_.has_tensor = true;
  }

  void take_number(PyObject* object) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (number == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    const std::int64_t size = key_.base.sizes()[static_cast<std::size_t>(at_)];
    if (overflow != 0 || number < -size || number >= size)
      refuse_index(fmt::format("index {} is out of range: dimension {} of shape {} has {} elements",
                               nb::str(object).c_str(), at_, to_string(key_.base.sizes()), size));
    key_.indices.emplace_back(number);
    ++at_;
  }

  void take_slice(const nb::object& slice) {
    const nb::object by = slice.attr("step");
    const std::int64_t step = bound_of(by).value_or(1);
    if (step == 0) throw InvalidArgument("a slice's step is not zero");
    if (step > 0) {
      key_.indices.emplace_back(
          Slice(bound_of(slice.attr("start")), bound_of(slice.attr("stop")), step));
    } else {
      take_backwards(slice);
    }
    ++at_;
    ++made_;
  }

  // The same elements forwards, then turned: a tensor has no negative strides.
  void take_backwards(const nb::object& slice) {
    Py_ssize_t start = 0, stop = 0, step = 0;
    if (PySlice_Unpack(slice.ptr(), &start, &stop, &step) != 0) throw nb::python_error();
    const auto size = static_cast<Py_ssize_t>(key_.base.size(at_));
    const Py_ssize_t count = PySlice_AdjustIndices(size, &start, &stop, step);
    const Py_ssize_t first = count == 0 ? 0 : start + (count - 1) * step;
    const Py_ssize_t last = count == 0 ? 0 : start + 1;
    const Tensor forwards = key_.base.slice(at_, first, last, -step);
    key_.base = writes_ ? forwards : ops::flip(forwards, IntList{at_});
    key_.turned.push_back(made_);
    key_.indices.emplace_back(Slice());
  }

  const bool writes_;
  Key key_;
  std::int64_t at_ = 0;    // of the base: the next dimension
  std::int64_t made_ = 0;  // of the result
  std::int64_t inserted_ = 0;  // dimensions of the base that the key made
};

// Reads a key; what the tensor layer refuses in it is an IndexError.
template <typename F>
auto indexed(F&& f) {
  try {
    return f();
  } catch (const InvalidArgument& error) {
    throw nb::index_error(error.what());
  }
}

}  // namespace

PyObject* get_item(PyObject* self, PyObject* key) {
  try {
    const Tensor base = tensor_of(self);
    const Key read = KeyReader(base, false).read(key);
    return new_tensor(indexed([&] {
      return worked(read.has_tensor ? base.numel() : 0,
                    [&] { return read.base.index(read.indices); });
    }));
  } catch (...) {
    return raise_current();
  }
}

int set_item(PyObject* self, PyObject* key, PyObject* value) {
  try {
    if (value == nullptr) throw nb::type_error("elements of a tensor cannot be deleted");
    const Tensor base = tensor_of(self);
    const Key read = KeyReader(base, true).read(key);
    Operand values;
    if (!operand_from(value, values.tensor))
      values.tensor = tensor_from(value, std::nullopt, base.device(), std::nullopt);
    if (!read.turned.empty()) {
      if (read.has_tensor)
        refuse_index("assignment with both a slice that goes backwards and index tensors: give the "
                     "slice as indices");
      const Tensor place = indexed([&] { return read.base.index(read.indices); });
      values.tensor = ops::flip(values.tensor.expand(place.sizes()), read.turned);
    }
    try {
      worked(read.has_tensor ? base.numel() : values.tensor.numel(),
             [&] { read.base.index_put_(read.indices, values.tensor); });
    } catch (const InvalidArgument& error) {
      // Of the index, or of the values.
      if (std::string_view(error.what()).starts_with("indexing: index")) refuse_index(error.what());
      throw;
    }
    return 0;
  } catch (...) {
    raise_current();
    return -1;
  }
}

}  // namespace tenon::python
