#include "tenon/nn/attention.h"

#include <fmt/format.h>

#include "tenon/autograd/autograd.h"
#include "tenon/base/error.h"
#include "tenon/nn/packed_attention.h"
#include "tenon/ops/attention.h"
#include "tenon/ops/binary.h"
#include "tenon/ops/unary.h"

namespace tenon::nn {

SelfAttention::SelfAttention(const AttentionOptions& options, Generator& generator)
    : options_(options),
      project_(std::make_shared<Linear>(options.width, 3 * options.width, true, generator)),
      out_(std::make_shared<Linear>(options.width, options.width, true, generator)),
      dropout_(std::make_shared<Dropout>(options.dropout, generator)) {
  if (options.heads < 1 || options.width % options.heads != 0)
    throw InvalidArgument(fmt::format("SelfAttention: {} heads do not divide a width of {}",
                                      options.heads, options.width));
  register_module("project", project_);
  register_module("out", out_);
  register_module("dropout", dropout_);
}

void SelfAttention::check_input(const Tensor& input) const {
  if (input.dim() != 3 || input.size(2) != options_.width)
    throw InvalidArgument(fmt::format("SelfAttention: an input of shape {}; it takes [N, L, {}]",
                                      to_string(input.sizes()), options_.width));
}

Tensor SelfAttention::forward(const Tensor& input) {
  check_input(input);
  const Tensor seen = packed_attention((*project_)(input), options_.heads, options_.causal);
  return (*dropout_)((*out_)(seen));
}

Tensor SelfAttention::step(const Tensor& input, GrowableTensor& cache) {
  check_input(input);
  const std::int64_t count = input.size(1), before = cache.length();
  if (input.size(0) != 1 || (count > 1 && before > 0))
    throw InvalidArgument(fmt::format(
        "SelfAttention: a step of shape {} behind {} places; it takes [1, n, {}] first, then "
        "[1, 1, {}]",
        to_string(input.sizes()), before, options_.width, options_.width));
  const std::int64_t width = options_.width, heads = options_.heads, size = width / heads;
  const Tensor qkv = (*project_)(input).select(0, 0);
  cache.append(qkv.narrow(1, width, 2 * width));
  const Tensor pairs = cache.tensor().view({before + count, 2, heads, size}).permute({1, 2, 0, 3});
  const Tensor query = qkv.narrow(1, 0, width).reshape({count, heads, size}).transpose(0, 1);
  // One place sees all before it; the first ones see those up to their own.
  const Tensor seen = ops::scaled_dot_product_attention(query, pairs.select(0, 0),
                                                        pairs.select(0, 1), {}, count > 1);
  return (*dropout_)((*out_)(seen.transpose(0, 1).reshape({1, count, width})));
}

TransformerBlock::TransformerBlock(const AttentionOptions& options, Generator& generator)
    : norm1_(std::make_shared<LayerNorm>(IntList{options.width})),
      attention_(std::make_shared<SelfAttention>(options, generator)),
      norm2_(std::make_shared<LayerNorm>(IntList{options.width})),
      widen_(std::make_shared<Linear>(options.width, 4 * options.width, true, generator)),
      narrow_(std::make_shared<Linear>(4 * options.width, options.width, true, generator)),
      dropout_(std::make_shared<Dropout>(options.dropout, generator)) {
  register_module("norm1", norm1_);
  register_module("attention", attention_);
  register_module("norm2", norm2_);
  register_module("widen", widen_);
  register_module("narrow", narrow_);
  register_module("dropout", dropout_);
}

Tensor TransformerBlock::forward(const Tensor& input) {
  return after_attention(ops::add(input, (*attention_)((*norm1_)(input))));
}

Tensor TransformerBlock::step(const Tensor& input, GrowableTensor& cache) {
  return after_attention(ops::add(input, attention_->step((*norm1_)(input), cache)));
}

Tensor TransformerBlock::after_attention(const Tensor& middle) {
  const Tensor hidden = ops::gelu((*widen_)((*norm2_)(middle)), true);
  return ops::add(middle, (*dropout_)((*narrow_)(hidden)));
}

}  // namespace tenon::nn
