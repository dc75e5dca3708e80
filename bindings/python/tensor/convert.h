// Between Python's values and tensors.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "tenon/tensor/dtype.h"
#include "tenon/tensor/indexing.h"
#include "tenon/tensor/scalar.h"
#include "tenon/tensor/tensor.h"

namespace tenon::python {

namespace nb = nanobind;

// A bool, int, float or complex; nothing for anything else. Throws nb::value_error for an int that
// does not fit 64 bits.
std::optional<Scalar> scalar_of(nb::handle value);
// A tensor, or a number that counts as a plain one in promotion; nothing for anything else.
std::optional<Tensor> operand_of(nb::handle value);
// The same, where anything else throws nb::type_error.
Tensor require_operand(nb::handle value);
// From a name, a NumPy or a PyTorch dtype. Throws InvalidArgument.
DType dtype_from(nb::handle dtype);
// From numbers in lists of lists, another library's array (DLPack) or a tensor: always a copy.
// Without a dtype: bool, int64, float32 or complex64 for lists, else the array's own.
Tensor tensor_from(nb::handle data, std::optional<DType> dtype);
Tensor tensor_from_dlpack(nb::handle array);
// Numbers in lists of lists; a number for a 0-d tensor.
nb::object list_of(const Tensor& tensor);
nb::object number_of(const Scalar& value);
// What stands in t[...].
std::vector<TensorIndex> index_of(nb::handle key);
// One int or a sequence of them.
std::vector<std::int64_t> ints_of(nb::handle value);
nb::tuple tuple_of(IntList values);

}  // namespace tenon::python
