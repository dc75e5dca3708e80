// Attention, and the block of a transformer: [N, L, width] -> [N, L, width]. Parameters are f32,
// and an input has their dtype. Throws InvalidArgument for another shape or dtype, and OutOfMemory.
// Threads: as Module. The work is O(N L width (L + width)).
#pragma once

#include "tenon/nn/layers.h"
#include "tenon/nn/norms.h"
#include "tenon/tensor/growable_tensor.h"

namespace tenon::nn {

// What SelfAttention and TransformerBlock are made of.
struct AttentionOptions {
  std::int64_t width = 0;  // of the features: heads * size of one
  std::int64_t heads = 1;
  bool causal = false;  // place i sees places up to i
  double dropout = 0;   // of what comes out
};

// Self-attention with several heads: softmax(q k^T / sqrt(width / heads)) v for each head, from
// [q, k, v] = x W^T + b, then a linear layer. Vaswani et al. 2017.
class SelfAttention final : public Module {
 public:
  // Throws InvalidArgument unless the heads divide the width.
  explicit SelfAttention(const AttentionOptions& options,
                         Generator& generator = default_generator());
  Tensor forward(const Tensor& input) override;
  // The same for the next places of one sequence, [1, n, width], causal, without gradients. `cache`
  // has the keys and values of earlier places; theirs are added. Throws InvalidArgument for another
  // shape.
  Tensor step(const Tensor& input, GrowableTensor& cache);

 private:
  void check_input(const Tensor& input) const;

  const AttentionOptions options_;
  const std::shared_ptr<Linear> project_;  // query, key and value in one: [3 * width, width]
  const std::shared_ptr<Linear> out_;
  const std::shared_ptr<Dropout> dropout_;
};

// x + attention(norm(x)), then x + mlp(norm(x)) with a hidden layer of four times the width and
// gelu (by tanh): the pre-norm block of GPT-2.
class TransformerBlock final : public Module {
 public:
  // Throws as SelfAttention's.
  explicit TransformerBlock(const AttentionOptions& options,
                            Generator& generator = default_generator());
  Tensor forward(const Tensor& input) override;
  // As SelfAttention's.
  Tensor step(const Tensor& input, GrowableTensor& cache);

 private:
  Tensor after_attention(const Tensor& middle);

  const std::shared_ptr<LayerNorm> norm1_;
  const std::shared_ptr<SelfAttention> attention_;
  const std::shared_ptr<LayerNorm> norm2_;
  const std::shared_ptr<Linear> widen_;
  const std::shared_ptr<Linear> narrow_;
  const std::shared_ptr<Dropout> dropout_;
};

}  // namespace tenon::nn
