#include "tenon/nn/models.h"

#include <fmt/format.h>

#include "tenon/autograd/autograd.h"
#include "tenon/base/error.h"
#include "tenon/nn/init.h"
#include "tenon/ops/binary.h"

namespace tenon::nn {

std::shared_ptr<Sequential> make_mlp(const ImageShape& shape, Generator& generator) {
  constexpr std::int64_t kHidden = 256;
  const auto linear = [&](std::int64_t inputs, std::int64_t outputs) {
    return std::make_shared<Linear>(inputs, outputs, true, generator);
  };
  auto model = std::make_shared<Sequential>();
  model->add(flatten());
  model->add(linear(shape.height * shape.width, kHidden));
  model->add(relu(true));
  model->add(linear(kHidden, kHidden));
  model->add(relu(true));
  model->add(linear(kHidden, shape.classes));
  return model;
}

std::shared_ptr<Sequential> make_cnn(const ImageShape& shape, Generator& generator) {
  constexpr std::int64_t kFirst = 32;
  constexpr std::int64_t kSecond = 64;
  constexpr std::int64_t kHidden = 128;
  const std::int64_t places = (shape.height / 4) * (shape.width / 4);
  if (places < 1)
    throw InvalidArgument(fmt::format("the cnn halves images twice: {} x {} is too small for it",
                                      shape.height, shape.width));
  ops::ConvOptions same;
  same.padding = 1;
  const auto convolution = [&](std::int64_t channels, std::int64_t filters) {
    return std::make_shared<Conv2d>(channels, filters, 3, same, true, generator);
  };
  auto model = std::make_shared<Sequential>();
  model->add(convolution(1, kFirst));
  model->add(relu(true));
  model->add(max_pool2d(2));
  model->add(convolution(kFirst, kSecond));
  model->add(relu(true));
  model->add(max_pool2d(2));
  model->add(flatten());
  model->add(std::make_shared<Linear>(kSecond * places, kHidden, true, generator));
  model->add(relu(true));
  model->add(std::make_shared<Linear>(kHidden, shape.classes, true, generator));
  return model;
}

CharGpt::CharGpt(const GptOptions& options, Generator& generator)
    : options_(options),
      tokens_(std::make_shared<Embedding>(options.vocabulary, options.width, generator)),
      norm_(std::make_shared<LayerNorm>(IntList{options.width})),
      head_(std::make_shared<Linear>(options.width, options.vocabulary, false, generator)) {
  constexpr double kDeviation = 0.02;  // of embeddings, as GPT-2 has it
  const Fill small = [](const Tensor& t, Generator& g) { normal_(t, 0, kDeviation, g); };
  refill_parameter(tokens_->weight, small, generator);
  register_module("tokens", tokens_);
  places_ = register_parameter(
      "places", make_parameter({options.length, options.width}, small, generator));
  const AttentionOptions attention{options.width, options.heads, true, options.dropout};
  for (std::int64_t i = 0; i < options.layers; ++i) {
    layers_.push_back(std::make_shared<TransformerBlock>(attention, generator));
    blocks_->add(layers_.back());
  }
  register_module("blocks", blocks_);
  register_module("norm", norm_);
  register_module("head", head_);
}

Tensor CharGpt::forward(const Tensor& index) {
  if (index.dim() != 2 || index.size(1) > options_.length)
    throw InvalidArgument(fmt::format("CharGpt: an input of shape {}; it takes [N, up to {}]",
                                      to_string(index.sizes()), options_.length));
  const Tensor x = ops::add((*tokens_)(index), places_.narrow(0, 0, index.size(1)));
  return (*head_)((*norm_)((*blocks_)(x)));
}

KeyValueCache CharGpt::make_cache() const {
  if (places_.device() == Device{}) return {options_.layers, options_.length, options_.width};
  return {options_.layers, options_.length, options_.width, places_.device()};
}

Tensor CharGpt::step(const Tensor& index, KeyValueCache& cache) {
  const std::int64_t before = cache.length();
  if (index.dim() != 2 || index.size(0) != 1 || before + index.size(1) > options_.length ||
      cache.layers() != layers_.size())
    throw InvalidArgument(fmt::format(
        "CharGpt: a step of shape {} behind {} places in {} layers; it takes [1, n], up to {} "
        "places, {} layers",
        to_string(index.sizes()), before, cache.layers(), options_.length, layers_.size()));
  Tensor x = ops::add((*tokens_)(index), places_.narrow(0, before, index.size(1)));
  for (std::size_t i = 0; i < layers_.size(); ++i) x = layers_[i]->step(x, cache.layer(i));
  return (*head_)((*norm_)(x));
}

}  // namespace tenon::nn
