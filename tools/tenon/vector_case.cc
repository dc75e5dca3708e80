#include "vector_case.h"

#include <fmt/format.h>

#include <cmath>

#include "tenon/autograd/autograd.h"
#include "tenon/base/error.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/interop/mapped_file.h"
#include "tenon/tensor/interop/safetensors.h"

namespace tenon::command {
namespace {

// Views as cases.json writes them: ["transpose", a, b], ["slice", dim, start, end, step],
// ["permute", [...]].
Tensor with_views(Tensor tensor, const Json& views) {
  for (const Json& view : views) {
    const auto name = view.at(0).get<std::string>();
    const auto number = [&](std::size_t i) { return view.at(i).get<std::int64_t>(); };
    if (name == "transpose")
      tensor = tensor.transpose(number(1), number(2));
    else if (name == "slice")
      tensor = tensor.slice(number(1), number(2), number(3), number(4));
    else if (name == "permute")
      tensor = tensor.permute(view.at(1).get<std::vector<std::int64_t>>());
    else
      throw InvalidArgument(fmt::format("view \"{}\" is not known", name));
  }
  return tensor;
}

// |a - b| with NaN equal to NaN and infinities to themselves.
double distance(Complex128 a, Complex128 b) {
  const auto part = [](double x, double y) {
    return x == y || (std::isnan(x) && std::isnan(y)) ? 0 : std::abs(x - y);
  };
  return std::hypot(part(a.real(), b.real()), part(a.imag(), b.imag()));
}

VectorOutcome compare(const char* what, const VectorCase& test, const std::vector<Tensor>& results,
                      const std::vector<Tensor>& expected) {
  VectorOutcome outcome;
  if (results.size() != expected.size()) {
    outcome.reason = fmt::format("{} {}s instead of {}", results.size(), what, expected.size());
    return outcome;
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Tensor& got = results[i];
    const Tensor& wanted = expected[i];
    if (!wanted.defined()) continue;
    if (!got.defined()) {
      outcome.reason = fmt::format("{} {} is missing", what, i);
      return outcome;
    }
    if (!(got.sizes() == wanted.sizes()) || got.dtype() != wanted.dtype()) {
      outcome.reason = fmt::format("{} {} is {} {} instead of {} {}", what, i,
                                   dtype_name(got.dtype()), to_string(got.sizes()),
                                   dtype_name(wanted.dtype()), to_string(wanted.sizes()));
      return outcome;
    }
    if (got.is_meta() || got.numel() == 0) continue;
    const Tensor a = contiguous(to(to(got.detach(), Device{}), DType::kC128));
    const Tensor b = contiguous(to(wanted, DType::kC128));
    for (std::int64_t j = 0; j < a.numel(); ++j) {
      const Complex128 x = a.const_data_ptr<Complex128>()[j];
      const Complex128 y = b.const_data_ptr<Complex128>()[j];
      const double error = distance(x, y);
      if (!(error <= outcome.largest_error)) outcome.largest_error = error;
      if (!(error <= test.atol + test.rtol * std::abs(y)) && error != 0 && outcome.reason.empty())
        outcome.reason =
            fmt::format("element {} of {} {} is {} instead of {}", j, what, i, x.real(), y.real());
    }
  }
  outcome.passed = outcome.reason.empty();
  return outcome;
}

}  // namespace

std::vector<VectorCase> load_vector_cases(const std::string& directory, Device device) {
  const std::string path = directory + "/cases.json";
  const IntrusivePtr<MappedFile> file = MappedFile::open(path);
  const SafeTensors stored = load_safetensors(directory + "/vectors.safetensors");
  const auto tensor = [&](const Json& name) -> const Tensor& {
    const auto it = stored.tensors.find(name.get<std::string>());
    if (it == stored.tensors.end())
      throw InvalidArgument(fmt::format("tensor {} is not in vectors.safetensors", name.dump()));
    return it->second;
  };
  std::vector<VectorCase> cases;
  try {
    const Json document = Json::parse(file->view(), nullptr, false);
    if (document.is_discarded()) throw InvalidArgument("is no JSON text, or is cut off");
    if (!document.at("cases").is_array() || document["cases"].empty())
      throw InvalidArgument("\"cases\" is no list, or an empty one");
    for (const Json& item : document["cases"]) {
      VectorCase test;
      test.id = item.at("id").get<std::int64_t>();
      test.op = item.at("op").get<std::string>();
      test.arguments = item.at("args");
      for (const Json& input : item.at("inputs")) {
        test.stored.push_back(to(tensor(input.at("tensor")), device));
        test.views.push_back(input.at("views"));
        test.inputs.push_back(with_views(test.stored.back(), test.views.back()));
      }
      for (const Json& output : item.at("outputs")) test.expected.push_back(tensor(output));
      const auto optional = [&](const Json& name) {
        return name.is_null() ? Tensor() : tensor(name);
      };
      for (const Json& name : item.value("grad_out", Json::array()))
        test.output_gradients.push_back(optional(name));
      for (const Json& name : item.value("grad_in", Json::array()))
        test.input_gradients.push_back(optional(name));
      if (test.input_gradients.size() > test.inputs.size())
        throw InvalidArgument(fmt::format("{} gradients in grad_in for {} inputs",
                                          test.input_gradients.size(), test.inputs.size()));
      test.rtol = item.at("rtol").get<double>();
      test.atol = item.at("atol").get<double>();
      cases.push_back(std::move(test));
    }
  } catch (const Json::exception&) {
    throw ParseError(path, 0, 0,
                     fmt::format("case {} lacks a field of a recorded case (id, op, args, inputs, "
                                 "outputs, rtol, atol), or one has the wrong type",
                                 cases.size()));
  } catch (const InvalidArgument& error) {
    throw ParseError(path, 0, 0, fmt::format("case {}: {}", cases.size(), error.what()));
  }
  return cases;
}

VectorOutcome compare_with_expected(const VectorCase& test, const std::vector<Tensor>& results) {
  return compare("result", test, results, test.expected);
}

VectorOutcome compare_gradients(const VectorCase& test, const std::vector<Tensor>& gradients) {
  return compare("gradient", test, gradients, test.input_gradients);
}

std::vector<Tensor> run_vector_case_backward(const VectorCase& test, std::vector<Tensor>& results) {
  VectorCase own = test;
  std::vector<Tensor> wanted;
  for (std::size_t i = 0; i < own.inputs.size() && i < test.input_gradients.size(); ++i) {
    if (!test.input_gradients[i].defined()) continue;
    wanted.push_back(test.stored[i].detach().set_requires_grad(true));
    own.inputs[i] = with_views(wanted.back(), test.views[i]);
  }
  results = run_vector_case(own);
  std::vector<Tensor> outputs, gradients;
  for (std::size_t i = 0; i < results.size() && i < test.output_gradients.size(); ++i) {
    if (!test.output_gradients[i].defined()) continue;
    outputs.push_back(results[i]);
    gradients.push_back(to(test.output_gradients[i], results[i].device()));
  }
  std::vector<Tensor> found(test.input_gradients.size());
  if (outputs.empty() || wanted.empty()) return found;
  std::vector<Tensor> some = autograd::grad(outputs, wanted, gradients);
  std::size_t next = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    if (test.input_gradients[i].defined()) found[i] = std::move(some[next++]);
  return found;
}

}  // namespace tenon::command
