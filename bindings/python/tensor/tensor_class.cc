// The class Tensor: what a tensor is, its views, and its way to other libraries.
#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "data.h"
#include "parts.h"
#include "slots.h"
#include "tenon/autograd/autograd.h"
#include "tenon/base/error.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/print.h"
#include "tenon/tensor/sparse.h"

namespace tenon::python {

DimVector integers(const nb::args& arguments, const char* what) {
  DimVector list;
  const bool one = arguments.size() == 1;
  if (!sizes_from(one ? nb::object(arguments[0]).ptr() : arguments.ptr(), list))
    refuse_type(what, "integers, or one sequence of them", arguments);
  return list;
}

namespace {

using IntTuple = nb::typed<nb::tuple, int, nb::ellipsis>;

IntTuple tuple_of(IntList list) {
  PyObject* made = PyTuple_New(static_cast<Py_ssize_t>(list.size()));
  if (made == nullptr) throw nb::python_error();
  for (std::size_t i = 0; i < list.size(); ++i)
    PyTuple_SetItem(made, static_cast<Py_ssize_t>(i), PyLong_FromLongLong(list[i]));
  return nb::steal<IntTuple>(made);
}

std::string device_text(const Tensor& t) {
  // There is one host and one meta device.
  const bool one = t.device().type == DeviceType::kCpu || t.is_meta();
  return one ? device_type_name(t.device().type) : to_string(t.device());
}

Tensor reversed(const Tensor& t) {
  DimVector order;
  for (std::int64_t d = t.dim(); d-- > 0;) order.push_back(d);
  return t.permute(order);
}

// The real or imaginary parts, as a view; where a gradient is to follow, as a copy.
Tensor part_of(const Tensor& t, std::int64_t which) {
  if (t.requires_grad() && grad_enabled()) return which == 0 ? ops::real(t) : ops::imag(t);
  const DType dtype = t.dtype() == DType::kC64 ? DType::kF32 : DType::kF64;
  return t.unsqueeze(-1).view_dtype(dtype).select(-1, which);
}

using Class = nb::class_<Tensor>;

void bind_description(Class& bound) {
  bound
      .def_prop_ro("shape", [](const Tensor& t) { return tuple_of(t.sizes()); },
                   "The lengths of the dimensions.")
      .def_prop_ro("strides", [](const Tensor& t) {
        DimVector bytes = t.strides().to_vector();
        for (std::int64_t& stride : bytes) stride *= static_cast<std::int64_t>(t.item_size());
        return tuple_of(bytes);
      }, "Bytes from one element to the next, by dimension.")
      .def("stride", [](const Tensor& t) { return tuple_of(t.strides()); },
           "Elements from one to the next, by dimension.")
      .def_prop_ro("dtype", [](const Tensor& t) { return dtype_object(t.dtype()); },
                   "The kind of element.")
      .def_prop_ro("device", &device_text, "Where the elements are: \"cpu\", \"meta\", \"sim:0\".")
      .def_prop_ro("ndim", &Tensor::dim, "The number of dimensions.")
      .def("dim", &Tensor::dim, "The number of dimensions.")
      .def_prop_ro("size", &Tensor::numel, "The number of elements, as in NumPy.")
      .def("numel", &Tensor::numel, "The number of elements.")
      .def_prop_ro("itemsize", &Tensor::item_size, "Bytes of an element.")
      .def_prop_ro("nbytes", &Tensor::nbytes, "Bytes of all elements.")
      .def("storage_offset", &Tensor::storage_offset, "Elements before the first one.")
      .def("data_ptr", [](const Tensor& t) {
        return reinterpret_cast<std::uintptr_t>(t.data_ptr());
      }, "The address of the first element.")
      .def("is_contiguous", [](const Tensor& t) { return t.is_contiguous(); },
           "Whether the elements lie one after another, in row-major order.")
      .def("shares_memory", [](const Tensor& a, const Tensor& b) { return a.is_alias_of(b); },
           nb::arg("other"), "Whether both are views of the same storage.")
      .def_prop_ro("version", [](const Tensor& t) { return t.is_inference() ? 0 : t.version(); }, "How often the values were changed in place.")
      .def_prop_ro("is_sparse", [](const Tensor& t) { return is_sparse(t); },
                   "Whether only elements that are not zero are stored.")
      .def("is_floating_point", [](const Tensor& t) { return is_floating(t.dtype()); },
           "Whether the elements are real floating point.")
      .def("is_complex", [](const Tensor& t) { return is_complex(t.dtype()); },
           "Whether the elements are complex.")
      .def("__repr__", [](const Tensor& t) { return to_string(t); })
      .def("__str__", [](const Tensor& t) { return to_string(t); })
      .def("__format__", [](const Tensor& t, nb::handle format) {
        const bool number = t.dim() == 0 && t.device().type == DeviceType::kCpu;
        const nb::object shown = number ? python_number(t.item()) : nb::object(nb::str(to_string(t).c_str()));
        return made_object(PyObject_Format(shown.ptr(), format.ptr()));
      }, nb::arg("format"));
}

void bind_views(Class& bound) {
  bound
      .def("view", [](const Tensor& t, const nb::args& sizes) {
        return wrap(t.view(integers(sizes, "view")));
      }, "The same elements in another shape; ValueError where that needs a copy.")
      .def("reshape", [](const Tensor& t, const nb::args& sizes) {
        return wrap(t.reshape(integers(sizes, "reshape")));
      }, "The same elements in another shape: a view, or a copy where there can be none.")
      .def("permute", [](const Tensor& t, const nb::args& order) {
        return wrap(t.permute(integers(order, "permute")));
      }, "A view with the dimensions in another order.")
      .def("expand", [](const Tensor& t, const nb::args& sizes) {
        return wrap(t.expand(integers(sizes, "expand")));
      }, "A view in which dimensions of one element are repeated; -1 keeps a length.")
      .def("transpose", [](const Tensor& t, std::int64_t a, std::int64_t b) {
        return wrap(t.transpose(a, b));
      }, nb::arg("dim0"), nb::arg("dim1"), "A view with two dimensions exchanged.")
      .def("t", [](const Tensor& t) { return wrap(t.t()); }, "A matrix transposed, as a view.")
      .def("movedim", [](const Tensor& t, Sizes from, Sizes to) {
        return wrap(t.movedim(IntList(from), IntList(to)));
      }, nb::arg("source"), nb::arg("destination"), "A view with dimensions moved elsewhere.")
      .def("flatten", [](const Tensor& t, std::int64_t start, std::int64_t end) {
        return wrap(t.flatten(start, end));
      }, nb::arg("start_dim") = 0, nb::arg("end_dim") = -1, "Neighbouring dimensions as one.")
      .def("unflatten", [](const Tensor& t, std::int64_t dim, Sizes sizes) {
        return wrap(t.unflatten(dim, sizes));
      }, nb::arg("dim"), nb::arg("sizes"), "One dimension as several.")
      .def("squeeze", [](const Tensor& t, Maybe<Sizes> dim) {
        if (!dim) return wrap(t.squeeze());
        // From the last one, so that the numbers of the others stay.
        std::vector<std::int64_t> dims(dim->list.begin(), dim->list.end());
        for (std::int64_t& d : dims) {
          if (d < -t.dim() || d >= t.dim())
            throw nb::index_error(fmt::format("squeeze: a tensor of {} dimensions has no dimension {}",
                                              t.dim(), d).c_str());
          d = d < 0 ? d + t.dim() : d;
        }
        std::sort(dims.rbegin(), dims.rend());
        Tensor view = t;
        for (const std::int64_t d : dims) view = view.squeeze(d);
        return wrap(view.is_same(t) ? t.alias() : view);
      }, nb::arg("dim") = nb::none(), "A view without dimensions of one element.")
      .def("unsqueeze", [](const Tensor& t, std::int64_t dim) { return wrap(t.unsqueeze(dim)); },
           nb::arg("dim"), "A view with a new dimension of one element.")
      .def("diagonal", [](const Tensor& t, std::int64_t offset, std::int64_t a, std::int64_t b) {
        return wrap(t.diagonal(offset, a, b));
      }, nb::arg("offset") = 0, nb::arg("dim1") = 0, nb::arg("dim2") = 1, "Diagonals, as a view.")
      .def("unfold", [](const Tensor& t, std::int64_t dim, std::int64_t size, std::int64_t step) {
        return wrap(t.unfold(dim, size, step));
      }, nb::arg("dim"), nb::arg("size"), nb::arg("step"),
           "Windows along a dimension, in a new last one, as a view.")
      .def("narrow", [](const Tensor& t, std::int64_t dim, std::int64_t start, std::int64_t length) {
        return wrap(t.narrow(dim, start, length));
      }, nb::arg("dim"), nb::arg("start"), nb::arg("length"), "A range of a dimension, as a view.")
      .def("select", [](const Tensor& t, std::int64_t dim, std::int64_t index) {
        return wrap(t.select(dim, index));
      }, nb::arg("dim"), nb::arg("index"), "One place of a dimension, as a view.")
      .def("split", [](const Tensor& t, Sizes sizes, std::int64_t dim) {
        return wrap_all(sizes.list.size() == 1 ? t.split(sizes.list[0], dim) : t.split(IntList(sizes), dim));
      }, nb::arg("split_size"), nb::arg("dim") = 0, "Pieces of a dimension, as views.")
      .def("chunk", [](const Tensor& t, std::int64_t chunks, std::int64_t dim) {
        return wrap_all(t.chunk(chunks, dim));
      }, nb::arg("chunks"), nb::arg("dim") = 0, "A number of pieces of a dimension, as views.")
      .def("unbind", [](const Tensor& t, std::int64_t dim) { return wrap_all(t.unbind(dim)); },
           nb::arg("dim") = 0, "The places of a dimension, as views.")
      .def("as_strided", [](const Tensor& t, Sizes sizes, Sizes strides, std::optional<std::int64_t> offset) {
        return wrap(t.as_strided(sizes, strides, offset.value_or(t.storage_offset())));
      }, nb::arg("size"), nb::arg("stride"), nb::arg("storage_offset") = nb::none(),
           "A view of the storage with any shape and strides (in elements).")
      .def("view_as", [](const Tensor& t, const Tensor& like) { return wrap(t.view(like.sizes())); },
           nb::arg("other"), "The same elements in another tensor's shape.")
      .def("view_dtype", [](const Tensor& t, DTypeName dtype) { return wrap(t.view_dtype(dtype.value)); },
           nb::arg("dtype"), "The same bytes as another dtype.")
      .def_prop_ro("T", [](const Tensor& t) { return wrap(reversed(t)); },
                   "A view with all dimensions in reverse order.")
      .def_prop_ro("mT", [](const Tensor& t) { return wrap(t.transpose(-2, -1)); },
                   "A view with each matrix transposed.")
      .def_prop_ro("real", [](nb::handle self) {
        const Tensor& t = tensor_of(self);
        return is_complex(t.dtype()) ? wrap(part_of(t, 0)) : again(self);
      }, "The real parts, as a view; a copy where the tensor requires a gradient.")
      .def("conj", [](const Tensor& t) { return wrap(ops::conj(t)); }, "The conjugate.")
      .def_prop_ro("imag", [](const Tensor& t) {
        if (!is_complex(t.dtype()))
          throw nb::type_error("imag: the tensor is real; zeros_like() has its imaginary parts");
        return wrap(part_of(t, 1));
      }, "The imaginary parts, as a view; a copy where the tensor requires a gradient.");
}

// "float64" or "cpu".
void named_by_text(nb::handle text, std::optional<DType>& dtype, std::optional<Device>& device) {
  try {
    device = parse_device(nb::cast<std::string>(text));
    return;
  } catch (const InvalidArgument&) {
  }
  try {
    dtype = parse_dtype(nb::cast<std::string>(text));
  } catch (const InvalidArgument&) {
    throw InvalidArgument(fmt::format("to: \"{}\" is neither a dtype (\"float32\") nor a device "
                                      "(\"cpu\")",
                                      nb::cast<std::string>(text)));
  }
}

Tensor converted(const Tensor& t, const nb::args& arguments, Maybe<DTypeName> dtype,
                 Maybe<DeviceName> device, bool copy) {
  std::optional<DType> to_dtype;
  std::optional<Device> to_device;
  if (dtype) to_dtype = dtype->value;
  if (device) to_device = device->value;
  for (nb::handle argument : arguments) {
    DType named = DType::kF32;
    Device place;
    if (is_tensor(argument.ptr())) {
      to_dtype = tensor_of(argument).dtype();
      to_device = tensor_of(argument).device();
    } else if (nb::isinstance<nb::str>(argument)) {
      named_by_text(argument, to_dtype, to_device);
    } else if (device_from(argument.ptr(), place)) {
      to_device = place;
    } else if (dtype_from(argument.ptr(), named)) {
      to_dtype = named;
    } else {
      refuse_type("to", "a dtype, the name of a device, or a tensor", argument);
    }
  }
  Tensor made = t;
  if (to_dtype) made = to(made, *to_dtype);
  if (to_device) made = to(made, *to_device);
  return copy && made.is_same(t) ? clone(made) : made;
}

template <DType dtype>
TensorObject as_dtype(nb::handle self) {
  const Tensor& t = tensor_of(self);
  return t.dtype() == dtype ? again(self) : wrap(to(t, dtype));
}

void bind_copies(Class& bound) {
  bound
      .def("to", [](nb::handle self, const nb::args& arguments, Maybe<DTypeName> dtype,
                    Maybe<DeviceName> device, bool copy) {
        const Tensor& t = tensor_of(self);
        const Tensor made = converted(t, arguments, dtype, device, copy);
        return made.is_same(t) ? again(self) : wrap(made);
      }, nb::arg("args"), nb::arg("dtype") = nb::none(), nb::arg("device") = nb::none(),
           nb::arg("copy") = false,
           "Of another dtype, on another device, or both; the tensor itself where nothing changes.")
      .def("astype", [](const Tensor& t, DTypeName dtype, bool copy) {
        const Tensor made = to(t, dtype.value);
        return wrap(copy && made.is_same(t) ? clone(t) : made);
      }, nb::arg("dtype"), nb::arg("copy") = true, "A copy of another dtype, as NumPy has it.")
      .def("cpu", [](nb::handle self) {
        const Tensor& t = tensor_of(self);
        return t.device() == Device{} ? again(self) : wrap(to(t, Device{}));
      }, "On the host.")
      .def("to_device", [](nb::handle self, DeviceName device, nb::handle stream) {
        if (!stream.is_none()) throw InvalidArgument("to_device: stream: give None");
        const Tensor& t = tensor_of(self);
        return t.device() == device.value ? again(self) : wrap(to(t, device.value));
      }, nb::arg("device"), nb::kw_only(), nb::arg("stream") = nb::none(),
           "On another device, as the array API has it.")
      .def("bool", &as_dtype<DType::kBool>, "As bool.")
      .def("int", &as_dtype<DType::kI32>, "As int32.")
      .def("long", &as_dtype<DType::kI64>, "As int64.")
      .def("half", &as_dtype<DType::kF16>, "As float16.")
      .def("bfloat16", &as_dtype<DType::kBF16>, "As bfloat16.")
      .def("float", &as_dtype<DType::kF32>, "As float32.")
      .def("double", &as_dtype<DType::kF64>, "As float64.")
      .def("clone", [](const Tensor& t) { return wrap(worked(t.numel(), [&] { return clone(t); })); },
           "A copy in memory of its own; gradients flow through.")
      .def("copy", [](const Tensor& t) { return wrap(worked(t.numel(), [&] { return clone(t); })); },
           "A copy in memory of its own, as NumPy calls it.")
      .def("contiguous", [](nb::handle self) {
        const Tensor& t = tensor_of(self);
        if (t.is_contiguous()) return again(self);
        return wrap(worked(t.numel(), [&] { return contiguous(t); }));
      }, "In row-major order; the tensor itself where it is.")
      .def("copy_", [](nb::handle self, Operand source) {
        const Tensor t = tensor_of(self);
        worked(t.numel(), [&] { copy_(t, source.tensor); });
        return again(self);
      }, nb::arg("source"), "Writes the values of another tensor here, broadcast and converted.")
      .def("fill_", [](nb::handle self, Number value) {
        const Tensor t = tensor_of(self);
        worked(t.numel(), [&] { fill_(t, value.value); });
        return again(self);
      }, nb::arg("value"), "Every element becomes the value.")
      .def("zero_", [](nb::handle self) {
        const Tensor t = tensor_of(self);
        worked(t.numel(), [&] { fill_(t, 0); });
        return again(self);
      }, "Every element becomes zero.")
      .def("item", [](const Tensor& t) { return python_number(t.item()); },
           "The only element, as a Python number.")
      .def("__complex__", [](const Tensor& t) {
        const auto number = t.item().to<Complex128>();
        return nb::steal(PyComplex_FromDoubles(number.real(), number.imag()));
      })
      .def("tolist", [](const Tensor& t) {
        if (t.device().type != DeviceType::kCpu || is_sparse(t))
          throw InvalidArgument("tolist: the tensor is not dense on the cpu: to(\"cpu\"), to_dense()");
        return to_list(t);
      }, "The elements as nested lists of numbers.");
}

void bind_sharing(Class& bound) {
  bound
      .def("numpy", [](nb::handle self) { return to_numpy(self); },
           "A NumPy array over the same bytes, which keeps this tensor's memory.")
      .def("__array__", [](nb::handle self, nb::handle dtype, nb::handle copy) {
        nb::object array = to_numpy(self);
        if (!dtype.is_none()) array = array.attr("astype")(dtype, nb::arg("copy") = false);
        if (!copy.is_none() && nb::cast<bool>(nb::bool_(copy))) array = array.attr("copy")();
        return array;
      }, nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none())
      .def("__dlpack__", [](const Tensor& t, nb::handle stream, nb::handle version,
                            nb::handle device, nb::handle copy) {
        return to_dlpack_object(t, stream, version, device, copy);
      }, nb::kw_only(), nb::arg("stream") = nb::none(), nb::arg("max_version") = nb::none(),
           nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none(),
           "A DLPack capsule over the same bytes: version 1.0 where the consumer reads it.")
      .def("__dlpack_device__", [](const Tensor& t) {
        if (t.device().type != DeviceType::kCpu)
          throw nb::buffer_error("__dlpack_device__: the tensor is not on the cpu");
        return nb::make_tuple(1, 0);
      }, "The DLPack device: (1, 0), the CPU.")
      .def("__array_namespace__", [](nb::handle, nb::handle version) {
        return nb::module_::import_("tenon.array_api").attr("_namespace")(version);
      }, nb::kw_only(), nb::arg("api_version") = nb::none())
      .def("__reduce_ex__", [](const Tensor& t, int) {
        const nb::object rebuild = nb::module_::import_("tenon.tensors").attr("_rebuild");
        const nb::object bytes = nb::module_::import_("tenon._tensor").attr("_bytes_of")(wrap(t));
        return nb::make_tuple(rebuild, nb::make_tuple(bytes, dtype_object(t.dtype()),
                                                      tuple_of(t.sizes()), t.requires_grad()));
      }, nb::arg("protocol"))
      .def("__copy__", [](const Tensor& t) { return wrap(t.alias()); })
      .def("__deepcopy__", [](const Tensor& t, nb::handle) {
        const Tensor made = clone(t.detach());
        if (t.requires_grad()) made.set_requires_grad(true);
        return wrap(made);
      }, nb::arg("memo"))
      .def("to_dense", [](const Tensor& t) { return wrap(to_dense(t)); },
           "A sparse tensor with all its elements.")
      .def("to_sparse_coo", [](const Tensor& t) { return wrap(to_sparse_coo(t)); },
           "What is not zero, by coordinates.")
      .def("to_sparse_csr", [](const Tensor& t) { return wrap(to_sparse_csr(t)); },
           "What is not zero of a matrix, by compressed rows.");
}

}  // namespace

void bind_class(nb::module_& module) {
  prepare_slots();
  Class bound(module, "Tensor", nb::type_slots(tensor_slots()), nb::is_weak_referenceable(),
              "Elements of one dtype in a box of up to 64 dimensions.\n\ntenon.tensor, "
              "tenon.asarray, tenon.zeros and the like make one. Memory comes from the thread's\n"
              "current allocator (tenon.use).");
  tensor_class = reinterpret_cast<PyTypeObject*>(bound.ptr());
  bound.def(
      "__init__",
      [](nb::pointer_and_handle<Tensor> self, nb::handle data, Maybe<DTypeName> dtype) {
        const bool shares = is_tensor(data.ptr());
        Tensor made = tensor_from(data, dtype ? std::optional(dtype->value) : std::nullopt,
                                  std::nullopt, shares ? std::nullopt : std::optional(true));
        if (shares) made = Tensor(made.impl()->shallow_copy(true, true));
        ::new (static_cast<void*>(self.p)) Tensor(std::move(made));
      },
      nb::arg("data"), nb::arg("dtype") = nb::none(),
      "Of data, as tenon.tensor; of a tensor: its elements, shared, without gradient.");
  bound.attr("__array_priority__") = 1000;
  bound.attr("__array_ufunc__") = nb::none();  // an array leaves signs with a tensor to the tensor
  bind_description(bound);
  bind_views(bound);
  bind_copies(bound);
  bind_sharing(bound);
}

}  // namespace tenon::python
