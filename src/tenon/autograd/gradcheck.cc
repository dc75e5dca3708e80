#include "tenon/autograd/gradcheck.h"

#include <fmt/format.h>

#include <cmath>

#include "tenon/autograd/forward_mode.h"
#include "tenon/base/error.h"
#include "tenon/ops/binary.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon::autograd {
namespace {

using Matrix = std::vector<std::vector<double>>;  // [input element][output element]

// A complex number counts as two real ones: Note [Complex gradients] in derivatives/formulas.h.
std::int64_t count_of(const Tensor& t) { return is_complex(t.dtype()) ? 2 * t.numel() : t.numel(); }
// Of a dense tensor of f64 or c128.
double* data_of(const Tensor& t) { return static_cast<double*>(t.detach().data_ptr()); }

std::vector<double> elements_of(const Tensor& t) {
  const DType wide = is_complex(t.dtype()) ? DType::kC128 : DType::kF64;
  const Tensor dense = contiguous(to(t.detach(), wide));
  const auto* data = static_cast<const double*>(dense.const_data_ptr());
  return std::vector<double>(data, data + count_of(dense));
}

// Copies that stay leaves, so that the caller's tensors are not touched.
std::vector<Tensor> own_leaves(std::span<const Tensor> inputs) {
  std::vector<Tensor> own;
  for (const Tensor& input : inputs) {
    if (!input.defined() || !input.requires_grad()) {
      own.push_back(input);
      continue;
    }
    if (input.dtype() != DType::kF64 && input.dtype() != DType::kC128)
      throw InvalidArgument(
          fmt::format("gradcheck: an input of {}: differences need float64 or complex128",
                      dtype_name(input.dtype())));
    // In order, as the differences go through the elements.
    own.push_back(clone(input.detach(), MemoryFormat::kContiguous).set_requires_grad(true));
  }
  return own;
}

void require_same_count(const std::vector<Tensor>& outputs, const std::vector<bool>& counted) {
  if (outputs.size() == counted.size()) return;
  throw InvalidArgument(
      fmt::format("gradcheck: the function returns {} outputs, and returned {} before: it must "
                  "return the same ones each time",
                  outputs.size(), counted.size()));
}

// The outputs that count, flattened.
std::vector<double> values_of(const CheckedFunction& f, std::span<const Tensor> inputs,
                              const std::vector<bool>& counted) {
  const NoGradGuard no_grad;
  std::vector<double> all;
  const std::vector<Tensor> outputs = f(inputs);
  require_same_count(outputs, counted);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!counted[i]) continue;
    const std::vector<double> some = elements_of(outputs[i]);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

Matrix by_differences(const CheckedFunction& f, std::vector<Tensor>& inputs,
                      const std::vector<bool>& counted, double step) {
  Matrix jacobian;
  for (const Tensor& input : inputs) {
    if (!input.defined() || !input.requires_grad()) continue;
    for (std::int64_t i = 0; i < count_of(input); ++i) {
      // Clones are dense; a device's pointer is good until it computes.
      const double value = data_of(input)[i];
      data_of(input)[i] = value + step;
      std::vector<double> column = values_of(f, inputs, counted);
      data_of(input)[i] = value - step;
      const std::vector<double> below = values_of(f, inputs, counted);
      data_of(input)[i] = value;
      for (std::size_t j = 0; j < column.size(); ++j) column[j] = (column[j] - below[j]) / 2 / step;
      jacobian.push_back(std::move(column));
    }
  }
  return jacobian;
}

// A tensor of zeros like `like` with a 1, or with i: of all its numbers the one at `at`.
Tensor unit(const Tensor& like, std::int64_t at) {
  Tensor one = zeros(like.sizes(), like.dtype(), like.device());
  data_of(one)[at] = 1;
  return one;
}

Matrix backward_jacobian(const CheckedFunction& f, std::span<const Tensor> inputs,
                         const std::vector<bool>& counted, std::size_t rows) {
  Matrix jacobian(rows);
  std::vector<Tensor> wanted;
  for (const Tensor& input : inputs)
    if (input.defined() && input.requires_grad()) wanted.push_back(input);
  const std::vector<Tensor> outputs = f(inputs);
  require_same_count(outputs, counted);
  GradOptions options;
  options.retain_graph = true;
  options.allow_unused = true;
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    if (!counted[o]) continue;
    for (std::int64_t i = 0; i < count_of(outputs[o]); ++i) {
      const Tensor one[] = {unit(outputs[o], i)};
      const std::vector<Tensor> found =
          grad(std::span(&outputs[o], 1), wanted, std::span(one), options);
      std::size_t row = 0;
      for (std::size_t k = 0; k < wanted.size(); ++k) {
        const std::vector<double> values =
            found[k].defined() ? elements_of(found[k])
                               : std::vector<double>(static_cast<std::size_t>(count_of(wanted[k])));
        for (const double value : values) jacobian[row++].push_back(value);
      }
    }
  }
  return jacobian;
}

Matrix forward_jacobian(const CheckedFunction& f, std::span<const Tensor> inputs,
                        const std::vector<bool>& counted) {
  Matrix jacobian;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (!inputs[k].defined() || !inputs[k].requires_grad()) continue;
    for (std::int64_t i = 0; i < count_of(inputs[k]); ++i) {
      std::vector<Tensor> tangents(inputs.size());
      tangents[k] = unit(inputs[k], i);
      const auto [outputs, directions] = jvp(f, inputs, tangents);
      require_same_count(outputs, counted);
      std::vector<double> column;
      for (std::size_t o = 0; o < outputs.size(); ++o) {
        if (!counted[o]) continue;
        const std::vector<double> values =
            directions[o].defined()
                ? elements_of(directions[o])
                : std::vector<double>(static_cast<std::size_t>(count_of(outputs[o])));
        column.insert(column.end(), values.begin(), values.end());
      }
      jacobian.push_back(std::move(column));
    }
  }
  return jacobian;
}

Tensor random_like(const Tensor& t, Generator& generator) {
  if (!is_complex(t.dtype())) return to(randn(t.sizes(), DType::kF64, generator), t.device());
  DimVector parts = t.sizes().to_vector();
  parts.push_back(2);
  const Tensor numbers = to(randn(parts, DType::kF64, generator), t.device());
  return numbers.view_dtype(DType::kC128).squeeze(-1);
}

std::string compare(const char* what, const Matrix& found, const Matrix& differences,
                    const GradcheckOptions& options) {
  for (std::size_t i = 0; i < differences.size(); ++i)
    for (std::size_t j = 0; j < differences[i].size(); ++j) {
      const double wanted = differences[i][j];
      const double got = j < found[i].size() ? found[i][j] : NAN;
      if (std::abs(got - wanted) <= options.atol + options.rtol * std::abs(wanted)) continue;
      return fmt::format(
          "{}: the derivative of output element {} by input element {} is {}, "
          "differences give {}",
          what, j, i, got, wanted);
    }
  return {};
}

}  // namespace

std::string gradcheck(const CheckedFunction& f, std::span<const Tensor> inputs,
                      const GradcheckOptions& options) {
  std::vector<Tensor> own = own_leaves(inputs);
  std::vector<bool> counted;
  bool any = false;
  for (const Tensor& output : f(own)) {
    counted.push_back(output.defined() && output.requires_grad());
    any |= counted.back();
  }
  if (!any) return "no output requires a gradient";
  const Matrix differences = by_differences(f, own, counted, options.step);
  std::string wrong = compare("backward", backward_jacobian(f, own, counted, differences.size()),
                              differences, options);
  if (wrong.empty() && options.check_forward)
    wrong = compare("forward", forward_jacobian(f, own, counted), differences, options);
  return wrong;
}

std::string gradgradcheck(const CheckedFunction& f, std::span<const Tensor> inputs,
                          const GradcheckOptions& options) {
  const std::vector<Tensor> own = own_leaves(inputs);
  std::vector<Tensor> all = own;
  std::vector<bool> counted;
  Generator generator(7);
  for (const Tensor& output : f(own)) {
    counted.push_back(output.defined() && output.requires_grad());
    if (counted.back()) all.push_back(random_like(output, generator).set_requires_grad(true));
  }
  const auto gradients = [&](std::span<const Tensor> in) {
    const EnableGradGuard enable;  // differences are taken of gradients, too
    const std::span<const Tensor> arguments = in.first(inputs.size());
    std::vector<Tensor> outputs, wanted;
    const std::vector<Tensor> made = f(arguments);
    require_same_count(made, counted);
    for (std::size_t i = 0; i < made.size(); ++i)
      if (counted[i]) outputs.push_back(made[i]);
    for (const Tensor& t : arguments)
      if (t.defined() && t.requires_grad()) wanted.push_back(t);
    GradOptions create;
    create.create_graph = true;
    create.allow_unused = true;
    std::vector<Tensor> found = grad(outputs, wanted, in.subspan(inputs.size()), create);
    std::erase_if(found, [](const Tensor& t) { return !t.defined(); });
    return found;
  };
  std::vector<Tensor> first = gradients(all);
  bool any = false;
  for (const Tensor& t : first) any |= t.requires_grad();
  return any ? gradcheck(gradients, all, options) : "the gradients require no gradient";
}

}  // namespace tenon::autograd
