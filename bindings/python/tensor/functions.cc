// Functions of whole tensors: reductions, order, choice, shape, products.
#include <fmt/format.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "parts.h"
#include "tenon/autograd/autograd.h"
#include "tenon/base/error.h"
#include "tenon/ops/into.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/geometry.h"
#include "tenon/tensor/promotion.h"

namespace tenon::python {
namespace {

IntList dims_of(const Maybe<Sizes>& dim) { return dim ? IntList(*dim) : IntList(); }

// A reduction over no dimension at all changes nothing but the dtype; C++ takes an empty list for
// all dimensions.
bool reduces_nothing(const Maybe<Sizes>& dim) { return dim && dim->list.size() == 0; }

template <const ops::ReduceOperator& op>
void reduction(nb::module_& module, const char* name, const char* about) {
  both(
      module, name,
      [](const Tensor& x, Maybe<Sizes> dim, bool keepdim, Maybe<DTypeName> dtype) {
        const Tensor source = dtype ? to(x, dtype->value) : x;
        return wrap(worked(x.numel(), [&] {
          const Tensor result = reduces_nothing(dim) ? op(source.unsqueeze(-1), IntList{-1}, false)
                                                     : op(source, dims_of(dim), keepdim);
          return dtype ? to(result, dtype->value) : result;
        }));
      },
      nb::arg("dim") = nb::none(), nb::arg("keepdim") = false, nb::kw_only(),
      nb::arg("dtype") = nb::none(), about);
}

void bind_reductions(nb::module_& module) {
  using namespace ops::op;
  reduction<sum>(module, "sum", "Sums over dimensions, or of all elements. Integers add up in int64.");
  reduction<prod>(module, "prod", "Products over dimensions, or of all elements.");
  reduction<mean>(module, "mean", "Means over dimensions, or of all elements.");
  reduction<amax>(module, "amax", "The largest elements; NaN passes on.");
  reduction<amin>(module, "amin", "The smallest elements; NaN passes on.");
  reduction<amax>(module, "max", "The largest elements, as in NumPy: no indices beside them.");
  reduction<amin>(module, "min", "The smallest elements, as in NumPy: no indices beside them.");
  reduction<any>(module, "any", "Whether an element is not zero.");
  reduction<all>(module, "all", "Whether no element is zero.");
  reduction<logsumexp>(module, "logsumexp", "The logarithm of the sum of exponentials.");
  reduction<norm>(module, "norm", "The Euclidean norm.");
  const auto deviation = [&](const char* name, const ops::VarianceOperator& op, const char* about) {
    both(module, name, [&op](const Tensor& x, Maybe<Sizes> dim, std::int64_t correction, bool keepdim) {
      return wrap(worked(x.numel(), [&] { return op(x, dims_of(dim), correction, keepdim); }));
    }, nb::arg("dim") = nb::none(), nb::kw_only(), nb::arg("correction") = 1,
         nb::arg("keepdim") = false, about);
  };
  deviation("var", var, "Squared deviations, divided by count - correction.");
  deviation("std", std, "The square root of var.");
  const auto place = [&](const char* name, const ops::ArgOperator& op, const char* about) {
    both(module, name, [&op](const Tensor& x, std::optional<std::int64_t> dim, bool keepdim) {
      return wrap(worked(x.numel(), [&] { return op(x, dim, keepdim); }));
    }, nb::arg("dim") = nb::none(), nb::arg("keepdim") = false, about);
  };
  place("argmax", argmax, "Where the first of the largest elements is.");
  place("argmin", argmin, "Where the first of the smallest elements is.");
}

void bind_order(nb::module_& module) {
  const auto running = [&](const char* name, Tensor (*function)(const Tensor&, std::int64_t), const char* about) {
    both(module, name, [function](const Tensor& x, std::int64_t dim) {
      return wrap(worked(x.numel(), [&] { return function(x, dim); }));
    }, nb::arg("dim"), about);
  };
  running("cumsum", &ops::cumsum, "Sums up to each element.");
  running("cumprod", &ops::cumprod, "Products up to each element.");
  const auto pair = [](ops::SortResult&& result) {
    return nb::make_tuple(wrap(std::move(result.first)), wrap(std::move(result.second)));
  };
  both(module, "sort", [pair](const Tensor& x, std::int64_t dim, bool descending) {
    return pair(worked(x.numel(), [&] { return ops::sort(x, dim, descending); }));
  }, nb::arg("dim") = -1, nb::arg("descending") = false,
       "Values in order, and where they were. Stable; NaN counts as largest.");
  both(module, "argsort", [](const Tensor& x, std::int64_t dim, bool descending) {
    return wrap(worked(x.numel(), [&] { return ops::argsort(x, dim, descending); }));
  }, nb::arg("dim") = -1, nb::arg("descending") = false, "The places of the elements in order.");
  both(module, "topk", [pair](const Tensor& x, std::int64_t k, std::int64_t dim, bool largest) {
    return pair(worked(x.numel(), [&] { return ops::topk(x, k, dim, largest); }));
  }, nb::arg("k"), nb::arg("dim") = -1, nb::arg("largest") = true,
       "The k largest values, best first, and where they were.");
}

void bind_choice(nb::module_& module) {
  module.def("where", [](const Tensor& condition, Operand a, Operand b) {
    return wrap(worked(condition.numel(), [&] { return ops::where(condition, a.tensor, b.tensor); }));
  }, nb::arg("condition"), nb::arg("x1"), nb::arg("x2"), "x1 where the condition holds, else x2.");
  both(module, "masked_fill", [](const Tensor& x, const Tensor& mask, Number value) {
    return wrap(worked(x.numel(), [&] { return ops::masked_fill(x, mask, value.value); }));
  }, nb::arg("mask"), nb::arg("value"), "A copy with a value where the mask holds.");
  both(module, "index_select", [](const Tensor& x, std::int64_t dim, const Tensor& index) {
    return wrap(worked(x.numel(), [&] { return ops::index_select(x, dim, index); }));
  }, nb::arg("dim"), nb::arg("index"), "The places of a dimension that an index names.");
  both(module, "gather", [](const Tensor& x, std::int64_t dim, const Tensor& index) {
    return wrap(worked(index.numel(), [&] { return ops::gather(x, dim, index); }));
  }, nb::arg("dim"), nb::arg("index"), "out[i][j] = x[i][index[i][j]] for dim 1.");
  both(module, "scatter_add", [](const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& source) {
    return wrap(worked(x.numel(), [&] { return ops::scatter_add(x, dim, index, source); }));
  }, nb::arg("dim"), nb::arg("index"), nb::arg("src"), "A copy with elements added at the index's places.");
  both(module, "index_add", [](const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& source) {
    return wrap(worked(x.numel(), [&] { return ops::index_add(x, dim, index, source); }));
  }, nb::arg("dim"), nb::arg("index"), nb::arg("source"), "A copy with slices added at the index's places.");
  both(module, "nonzero", [](const Tensor& x) {
    const Tensor mask = x.dtype() == DType::kBool ? x : ops::ne(x, Scalar(0));
    nb::list places;
    for (const Tensor& place : nonzero_positions(mask)) places.append(wrap(place));
    return nb::tuple(places);
  }, "Where x is not zero: a tensor of places for each dimension, as in NumPy.");
  module.def("embedding", [](const Tensor& index, const Tensor& weight) {
    return wrap(worked(index.numel() * 16, [&] { return ops::embedding(index, weight); }));
  }, nb::arg("index"), nb::arg("weight"), "Rows of weight in the index's shape.");
  module.def("one_hot", [](const Tensor& index, std::int64_t classes) {
    return wrap(worked(index.numel(), [&] { return ops::one_hot(index, classes); }));
  }, nb::arg("index"), nb::arg("num_classes") = -1, "1 at each index of a new last dimension.");
}

void bind_shape(nb::module_& module) {
  module.def("cat", [](TensorList tensors, std::int64_t dim) {
    return wrap(worked(1 << 20, [&] { return ops::cat(tensors.list, dim); }));
  }, nb::arg("tensors"), nb::arg("dim") = 0, "Side by side along a dimension.");
  module.def("stack", [](TensorList tensors, std::int64_t dim) {
    return wrap(worked(1 << 20, [&] { return ops::stack(tensors.list, dim); }));
  }, nb::arg("tensors"), nb::arg("dim") = 0, "Side by side along a new dimension.");
  both(module, "flip", [](const Tensor& x, Sizes dims) {
    return wrap(worked(x.numel(), [&] { return ops::flip(x, dims); }));
  }, nb::arg("dims"), "A copy with dimensions turned.");
  both(module, "roll", [](const Tensor& x, Sizes shifts, Maybe<Sizes> dims) {
    return wrap(worked(x.numel(), [&] { return ops::roll(x, shifts, dims_of(dims)); }));
  }, nb::arg("shifts"), nb::arg("dims") = nb::none(), "What is pushed over one end comes in at the other.");
  both(module, "tile", [](const Tensor& x, Sizes repeats) {
    DimVector all;
    for (auto i = static_cast<std::int64_t>(repeats.list.size()); i < x.dim(); ++i) all.push_back(1);
    for (const std::int64_t n : repeats.list) all.push_back(n);
    return wrap(worked(x.numel(), [&] { return ops::repeat(x, all); }));
  }, nb::arg("repeats"), "As tiles, side by side.");
  nb::handle type = reinterpret_cast<PyObject*>(tensor_class);
  nb::cpp_function_def([](const Tensor& x, const nb::args& repeats) {
    return wrap(ops::repeat(x, integers(repeats, "repeat")));
  }, nb::scope(type), nb::name("repeat"), nb::is_method(), "As tiles, side by side, as in PyTorch.");
  both(module, "pad", [](const Tensor& x, Sizes pad, Number value) {
    return wrap(worked(x.numel(), [&] { return ops::pad(x, pad, value.value); }));
  }, nb::arg("pad"), nb::arg("value") = 0,
       "More elements around: a pair (before, after) for each dimension, from the last one on.");
  both(module, "tril", [](const Tensor& x, std::int64_t k) {
    return wrap(worked(x.numel(), [&] { return ops::tril(x, k); }));
  }, nb::arg("k") = 0, "What lies below and on a diagonal; zero elsewhere.");
  both(module, "triu", [](const Tensor& x, std::int64_t k) {
    return wrap(worked(x.numel(), [&] { return ops::triu(x, k); }));
  }, nb::arg("k") = 0, "What lies above and on a diagonal; zero elsewhere.");
  module.def("broadcast_to", [](const Tensor& x, Sizes shape) { return wrap(x.expand(shape)); },
             nb::arg("x"), nb::arg("shape"), "A view of another shape, dimensions of one element repeated.");
  module.def("broadcast_tensors", [](TensorList tensors) {
    DimVector sizes;
    for (const Tensor& t : tensors.list) sizes = broadcast_sizes(sizes, t.sizes(), "broadcast_tensors");
    nb::list views;
    for (const Tensor& t : tensors.list) views.append(wrap(t.expand(sizes)));
    return views;
  }, nb::arg("tensors"), "Views of one shape.");
}

void bind_products(nb::module_& module) {
  const auto work = [](const Tensor& a, const Tensor& b) { return a.numel() + b.numel() * 4; };
  both(module, "matmul", [work](const Tensor& a, const Tensor& b, nb::handle out) {
    if (out.is_none()) return wrap(worked(work(a, b), [&] { return ops::matmul(a, b); }));
    const Tensor target = tensor_of(out);
    worked(work(a, b), [&] { ops::into(target, ops::op::matmul, a, b); });
    return again(out);
  }, nb::arg("other"), nb::kw_only(), nb::arg("out") = nb::none(), "Matrix product; leading dimensions are a batch.");
  both(module, "bmm", [work](const Tensor& a, const Tensor& b) {
    return wrap(worked(work(a, b), [&] { return ops::bmm(a, b); }));
  }, nb::arg("other"), "[n, p, k] by [n, k, q].");
  both(module, "outer", [](const Tensor& a, const Tensor& b) {
    return wrap(worked(a.numel() * b.numel(), [&] { return ops::outer(a, b); }));
  }, nb::arg("other"), "[m] by [n]: [m, n].");
  module.def("addmm", [work](const Tensor& bias, const Tensor& a, const Tensor& b) {
    return wrap(worked(work(a, b), [&] { return ops::addmm(bias, a, b); }));
  }, nb::arg("bias"), nb::arg("a"), nb::arg("b"), "bias + a b.");
}

}  // namespace

void bind_functions(nb::module_& module) {
  bind_reductions(module);
  bind_order(module);
  bind_choice(module);
  bind_shape(module);
  bind_products(module);
  module.def("result_type", [](const nb::args& arguments) {
    ResultType type;
    for (nb::handle argument : arguments) {
      Scalar number = 0;
      if (is_tensor(argument.ptr()))
        type.add(tensor_of(argument));
      else if (number_from(argument.ptr(), number))
        type.add(number);
      else
        refuse_type("result_type", "tensors and numbers", argument);
    }
    return dtype_object(type.get());
  }, nb::sig("def result_type(*args: tenon._typing.Operand) -> dtype"),
             "The dtype that an operation on these computes in.");
}

}  // namespace tenon::python
