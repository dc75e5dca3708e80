#include "tenon/nn/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "tenon/autograd/autograd.h"
#include "tenon/base/error.h"
#include "tenon/nn/init.h"
#include "tenon/ops/binary.h"
#include "tenon/ops/matmul.h"
#include "tenon/ops/select.h"
#include "tenon/ops/unary.h"
#include "tenon/tensor/factories.h"

namespace tenon::nn {
namespace {

const double kTorchGain = std::sqrt(1.0 / 3);

void require_positive(const char* what, std::initializer_list<std::int64_t> sizes) {
  for (const std::int64_t size : sizes)
    if (size < 1)
      throw InvalidArgument(fmt::format("{}: a size of {}; take 1 or more", what, size));
}

Tensor make_weight(IntList sizes, Generator& generator) {
  return make_parameter(
      sizes, [](const Tensor& t, Generator& g) { kaiming_uniform_(t, kTorchGain, g); }, generator);
}

Tensor make_bias(const Tensor& weight, Generator& generator) {
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in(weight)));
  return make_parameter(
      {weight.size(0)}, [=](const Tensor& t, Generator& g) { uniform_(t, -bound, bound, g); },
      generator);
}

// Only the caller can see the elements: no other tensor, node or checkpoint holds them. (A
// leaf is what a program made to keep.)
bool is_seen_once(const Tensor& x) {
  return x.use_count() == 1 && x.storage().use_count() == 1 &&
         !x.storage().impl()->is_copy_on_write() && (!x.requires_grad() || !autograd::is_leaf(x));
}

void check_groups(const char* what, std::int64_t channels, std::int64_t filters,
                  std::int64_t groups) {
  require_positive(what, {channels, filters, groups});
  if (channels % groups != 0 || filters % groups != 0)
    throw InvalidArgument(fmt::format("{}: {} channels and {} filters do not divide into {} groups",
                                      what, channels, filters, groups));
}

}  // namespace

Linear::Linear(std::int64_t inputs, std::int64_t outputs, bool with_bias, Generator& generator) {
  require_positive("Linear", {inputs, outputs});
  weight = register_parameter("weight", make_weight({outputs, inputs}, generator));
  if (with_bias) bias = register_parameter("bias", make_bias(weight, generator));
}

Tensor Linear::forward(const Tensor& input) { return ops::linear(input, weight, bias); }

Conv2d::Conv2d(std::int64_t channels, std::int64_t filters, ops::Pair kernel,
               const ops::ConvOptions& options, bool with_bias, Generator& generator)
    : options_(options) {
  check_groups("Conv2d", channels, filters, options.groups);
  require_positive("Conv2d", {kernel.height, kernel.width});
  weight = register_parameter(
      "weight",
      make_weight({filters, channels / options.groups, kernel.height, kernel.width}, generator));
  if (with_bias) bias = register_parameter("bias", make_bias(weight, generator));
}

Tensor Conv2d::forward(const Tensor& input) { return ops::conv2d(input, weight, bias, options_); }

Conv1d::Conv1d(std::int64_t channels, std::int64_t filters, std::int64_t kernel,
               const ops::ConvOptions& options, bool with_bias, Generator& generator)
    : options_(options) {
  check_groups("Conv1d", channels, filters, options.groups);
  require_positive("Conv1d", {kernel});
  weight = register_parameter(
      "weight", make_weight({filters, channels / options.groups, kernel}, generator));
  if (with_bias) bias = register_parameter("bias", make_bias(weight, generator));
}

Tensor Conv1d::forward(const Tensor& input) { return ops::conv1d(input, weight, bias, options_); }

Embedding::Embedding(std::int64_t rows, std::int64_t width, Generator& generator) {
  require_positive("Embedding", {rows, width});
  weight = register_parameter(
      "weight",
      make_parameter(
          {rows, width}, [](const Tensor& t, Generator& g) { normal_(t, 0, 1, g); }, generator));
}

Tensor Embedding::forward(const Tensor& index) { return ops::embedding(index, weight); }

Dropout::Dropout(double probability, Generator& generator)
    : probability_(probability), generator_(generator) {
  if (!(probability >= 0 && probability < 1))
    throw InvalidArgument(
        fmt::format("Dropout: a probability of {}; it may be 0 up to, not with, 1", probability));
}

Tensor Dropout::forward(const Tensor& input) {
  if (!is_training() || probability_ == 0) return input;
  Tensor mask;
  {
    const NoGradGuard no_grad;
    mask = bernoulli_(empty_like(input), 1 - probability_, generator_);
    ops::mul_(mask, 1 / (1 - probability_));
  }
  return ops::mul(input, mask);
}

std::shared_ptr<Module> make_function(std::function<Tensor(const Tensor&)> function) {
  return std::make_shared<Function>(std::move(function));
}

std::shared_ptr<Module> relu(bool in_place) {
  return make_function([in_place](const Tensor& x) {
    return in_place && is_seen_once(x) ? ops::relu_(x) : ops::relu(x);
  });
}

std::shared_ptr<Module> gelu() {
  return make_function([](const Tensor& x) { return ops::gelu(x); });
}

std::shared_ptr<Module> flatten(std::int64_t start_dim) {
  return make_function([=](const Tensor& x) { return x.flatten(start_dim); });
}

std::shared_ptr<Module> max_pool2d(ops::Pair kernel, ops::Pair stride) {
  ops::PoolOptions options;
  options.kernel = kernel;
  options.stride = stride;
  return make_function([=](const Tensor& x) { return ops::max_pool2d(x, options); });
}

Sequential::Sequential(const std::vector<std::shared_ptr<Module>>& parts) {
  for (const std::shared_ptr<Module>& part : parts) add(part);
}

void Sequential::add(std::shared_ptr<Module> module) {
  register_module(std::to_string(size()), std::move(module));
}

Tensor Sequential::forward(const Tensor& input) {
  const auto run = [this](Tensor x, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) x = (*modules()[i].second)(x);
    return x;
  };
  const auto segments = static_cast<std::size_t>(segments_);
  if (segments < 2 || !grad_enabled()) return run(input, 0, size());
  Tensor x = input;
  const std::size_t length = (size() + segments - 1) / segments;
  for (std::size_t begin = 0; begin < size(); begin += length) {
    const std::size_t end = std::min(begin + length, size());
    // The last segment's backward comes at once: nothing is saved by computing it twice.
    if (end == size()) return run(x, begin, end);
    const auto segment = [=](std::span<const Tensor> in) { return run(in[0], begin, end); };
    x = autograd::checkpoint(std::function<Tensor(std::span<const Tensor>)>(segment), {&x, 1});
  }
  return x;
}

}  // namespace tenon::nn
