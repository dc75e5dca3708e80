// The models that the command trains, in f32. Throws InvalidArgument for sizes below 1 and inputs
// of another shape, and OutOfMemory. Threads: as Module. Complexity: as their layers.
#pragma once

#include "tenon/nn/attention.h"
#include "tenon/nn/key_value_cache.h"

namespace tenon::nn {

// What a classifier of images sees.
struct ImageShape {
  std::int64_t height = 28;
  std::int64_t width = 28;
  std::int64_t classes = 10;
};

// height * width - 256 - 256 - classes, with relu between: [N, 1, H, W] -> [N, classes].
std::shared_ptr<Sequential> make_mlp(const ImageShape& shape,
                                     Generator& generator = default_generator());

// Two convolutions 3 x 3 (32 and 64 filters), each with relu and max pooling 2 x 2, then 128 hidden
// units: [N, 1, H, W] -> [N, classes]. Throws InvalidArgument for images below 4 x 4.
std::shared_ptr<Sequential> make_cnn(const ImageShape& shape,
                                     Generator& generator = default_generator());

// The sizes of a CharGpt.
struct GptOptions {
  std::int64_t vocabulary = 0;
  std::int64_t length = 64;  // most characters seen at once
  std::int64_t layers = 4;
  std::int64_t width = 128;
  std::int64_t heads = 4;
  double dropout = 0;
};

// A GPT over characters (Radford et al. 2019, small): [N, L] of i64 -> logits [N, L, vocabulary].
class CharGpt final : public Module {
 public:
  explicit CharGpt(const GptOptions& options, Generator& generator = default_generator());
  // Throws InvalidArgument for sequences longer than `length`.
  Tensor forward(const Tensor& index) override;
  // The logits of the next places of one sequence, [1, n] -> [1, n, vocabulary], without gradients.
  // Equal to those of forward() over the places in the cache and these, up to rounding. First any
  // number of places, then one at a time.
  // Throws InvalidArgument for another shape, for a cache of another model's sizes, and beyond
  // `length` places: earlier places would then have to move.
  Tensor step(const Tensor& index, KeyValueCache& cache);
  // An empty cache for a sequence, on the model's device: on the host it takes memory as it grows,
  // elsewhere at once. And the sizes that the model was made with.
  KeyValueCache make_cache() const;
  const GptOptions& options() const { return options_; }
  // As Sequential's, over the blocks.
  void set_checkpoints(std::int64_t segments) { blocks_->set_checkpoints(segments); }

 private:
  const GptOptions options_;
  const std::shared_ptr<Embedding> tokens_;
  const std::shared_ptr<Sequential> blocks_ = std::make_shared<Sequential>();
  std::vector<std::shared_ptr<TransformerBlock>> layers_;  // the blocks again, for steps
  const std::shared_ptr<LayerNorm> norm_;
  const std::shared_ptr<Linear> head_;
  Tensor places_;  // [length, width], added to the tokens'
};

}  // namespace tenon::nn
