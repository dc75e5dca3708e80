// Cases of operators with the results that they must give.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tenon/tensor/tensor.h"

namespace tenon::command {

using Json = nlohmann::json;

// One case of a vectors directory's cases.json.
struct VectorCase {
  std::int64_t id = 0;
  std::string op;
  Json arguments;
  std::vector<Tensor> inputs;  // with their views taken
  std::vector<Tensor> stored;  // without
  std::vector<Json> views;
  std::vector<Tensor> expected;
  std::vector<Tensor> output_gradients;  // undefined: that output has none
  std::vector<Tensor> input_gradients;   // expected, of what is stored; undefined: it gets none
  double rtol = 0;
  double atol = 0;
};

// Reads `cases.json` and `vectors.safetensors` of a directory and puts the inputs on `device`.
// Throws ParseError naming the file and the case.
std::vector<VectorCase> load_vector_cases(const std::string& directory, Device device);

// Runs the operator of a case. Throws InvalidArgument for an operator that is not known.
std::vector<Tensor> run_vector_case(const VectorCase& test);

// The gradients of a case's inputs, given those of its outputs; undefined where none is expected.
// The results of the forward call go to `results`. Throws what the operators do.
std::vector<Tensor> run_vector_case_backward(const VectorCase& test, std::vector<Tensor>& results);

// How far results are from what is expected.
struct VectorOutcome {
  bool passed = false;
  double largest_error = 0;  // absolute
  std::string reason;        // of a failure
};
VectorOutcome compare_with_expected(const VectorCase& test, const std::vector<Tensor>& results);
VectorOutcome compare_gradients(const VectorCase& test, const std::vector<Tensor>& gradients);

}  // namespace tenon::command
