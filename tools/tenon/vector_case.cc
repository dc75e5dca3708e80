#include "vector_case.h"

#include <fmt/format.h>

#include <cmath>

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
    const Json document = Json::parse(file->view());
    for (const Json& item : document.at("cases")) {
      VectorCase test;
      test.id = item.at("id").get<std::int64_t>();
      test.op = item.at("op").get<std::string>();
      test.arguments = item.at("args");
      for (const Json& input : item.at("inputs"))
        test.inputs.push_back(
            with_views(to(tensor(input.at("tensor")), device), input.at("views")));
      for (const Json& output : item.at("outputs")) test.expected.push_back(tensor(output));
      test.rtol = item.at("rtol").get<double>();
      test.atol = item.at("atol").get<double>();
      cases.push_back(std::move(test));
    }
  } catch (const Json::exception& error) {
    throw ParseError(path, 0, 0, fmt::format("case {}: {}", cases.size(), error.what()));
  } catch (const InvalidArgument& error) {
    throw ParseError(path, 0, 0, fmt::format("case {}: {}", cases.size(), error.what()));
  }
  return cases;
}

VectorOutcome compare_with_expected(const VectorCase& test, const std::vector<Tensor>& results) {
  VectorOutcome outcome;
  if (results.size() != test.expected.size()) {
    outcome.reason = fmt::format("{} results instead of {}", results.size(), test.expected.size());
    return outcome;
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Tensor& got = results[i];
    const Tensor& wanted = test.expected[i];
    if (!(got.sizes() == wanted.sizes()) || got.dtype() != wanted.dtype()) {
      outcome.reason = fmt::format("result {} is {} {} instead of {} {}", i,
                                   dtype_name(got.dtype()), to_string(got.sizes()),
                                   dtype_name(wanted.dtype()), to_string(wanted.sizes()));
      return outcome;
    }
    if (got.is_meta() || got.numel() == 0) continue;
    const Tensor a = contiguous(to(got, DType::kC128));
    const Tensor b = contiguous(to(wanted, DType::kC128));
    for (std::int64_t j = 0; j < a.numel(); ++j) {
      const Complex128 x = a.const_data_ptr<Complex128>()[j];
      const Complex128 y = b.const_data_ptr<Complex128>()[j];
      const double error = distance(x, y);
      if (!(error <= outcome.largest_error)) outcome.largest_error = error;
      if (!(error <= test.atol + test.rtol * std::abs(y)) && error != 0 && outcome.reason.empty())
        outcome.reason =
            fmt::format("element {} of result {} is {} instead of {}", j, i, x.real(), y.real());
    }
  }
  outcome.passed = outcome.reason.empty();
  return outcome;
}

}  // namespace tenon::command
