// Transformers: dense, with experts, with a long context, with adapters; encoders of speech.
#include <algorithm>
#include <array>
#include <vector>

#include "tenon/lab/synthesis/model.h"

namespace tenon::synthesis {
namespace {

constexpr std::uint64_t kVocabulary = 50'257;
constexpr std::array<TransformerShape, kTransformerSizes> kShapes = {{
    {2, 192, 3, 768, 4'096, 256},
    {4, 256, 4, 1'024, 8'192, 512},
    {6, 512, 8, 2'048, 30'522, 512},
    {12, 768, 12, 3'072, kVocabulary, 1'024},
    {24, 1'024, 16, 4'096, kVocabulary, 1'024},
    {24, 1'536, 16, 6'144, kVocabulary, 2'048},
    {16, 2'048, 16, 5'504, 32'000, 4'096},
    {28, 3'072, 24, 8'192, 32'000, 4'096},
    {32, 4'096, 32, 11'008, 32'000, 4'096},
}};
constexpr std::uint64_t kFeatures = 80;  // of a frame of speech
constexpr std::uint64_t kExperts = 8;
constexpr std::uint64_t kChosen = 2;     // experts for each token
constexpr std::uint64_t kFewestTokens = 32;

class Transformer final : public Model {
 public:
  Transformer(Tape& tape, const Recipe& recipe)
      : tape_(tape), recipe_(recipe), shape_(transformer_shape(recipe.size)),
        expert_shapes_(recipe.seed + 17) {
    const bool frozen = recipe.kind == Kind::kLora;
    const std::uint64_t in = is_speech() ? kFeatures * 3 : shape_.vocabulary;
    table_ = &tape.parameter(in * shape_.width, !frozen);
    positions_ = &tape.parameter(shape_.tokens * shape_.width, !frozen);
    tape.set_shards(recipe.shards);
    for (std::uint64_t i = 0; i < shape_.layers; ++i) layers_.push_back(make_layer(frozen));
    tape.set_shards(1);
    last_norm_ = &tape.parameter(2 * shape_.width, !frozen);
    head_ = &tape.parameter(shape_.vocabulary * shape_.width, !frozen);
  }

  Tensor input(std::uint64_t batch, Random& shapes) override {
    batch_ = batch;
    tokens_ = shape_.tokens;
    if (recipe_.kind == Kind::kLongContext) {  // one sequence
      tokens_ = 1'024 * batch;
      batch_ = 1;
    }
    if (recipe_.varying) tokens_ = shapes.between(std::max(kFewestTokens, tokens_ / 8), tokens_);
    Tensor made = is_speech() ? tape_.make(batch_ * tokens_ * 2 * kFeatures, 4)
                              : tape_.make(batch_ * tokens_, 8);
    tape_.program().run(made.bytes());
    return made;
  }

  Tensor forward(Tensor input) override {
    const std::uint64_t rows = batch_ * tokens_;
    Tensor x = is_speech() ? listen(input) : tape_.embed(rows, shape_.width, *table_);
    x = tape_.pointwise(x);  // positions
    for (Layer& layer : layers_) x = run_layer(x, layer);
    x = tape_.norm(x, rows, *last_norm_);
    const Tensor logits = tape_.linear(x, shape_.width, shape_.vocabulary, *head_, nullptr);
    x = {};
    return tape_.loss(logits, rows);
  }

 private:
  struct Adapter {
    Parameter* down = nullptr;
    Parameter* up = nullptr;
  };
  struct Layer {
    Parameter *norm1, *norm2, *qkv, *qkv_bias, *out, *out_bias, *router;
    Parameter *in_bias, *back_bias;         // null where gated or with experts
    std::vector<Parameter*> in, back;  // one of each, or of each expert
    Adapter adapter;
    std::vector<Parameter*> all;
  };

  bool is_speech() const { return recipe_.kind == Kind::kSpeech; }
  bool is_gated() const { return recipe_.size >= 6; }

  Layer make_layer(bool frozen) {
    const std::uint64_t width = shape_.width;
    Layer layer{};
    const auto add = [&](std::uint64_t elements, bool trained) {
      layer.all.push_back(&tape_.parameter(elements, trained));
      return layer.all.back();
    };
    layer.norm1 = add(2 * width, !frozen);
    layer.qkv = add(3 * width * width, !frozen);
    layer.qkv_bias = add(3 * width, !frozen);
    layer.out = add(width * width, !frozen);
    layer.norm2 = add(2 * width, !frozen);
    if (!is_gated() && recipe_.kind != Kind::kExperts) {
      layer.out_bias = add(width, !frozen);
      layer.in_bias = add(shape_.hidden, !frozen);
      layer.back_bias = add(width, !frozen);
    }
    const std::uint64_t experts = recipe_.kind == Kind::kExperts ? kExperts : 1;
    if (experts > 1) layer.router = add(width * experts, true);
    for (std::uint64_t i = 0; i < experts; ++i) {
      layer.in.push_back(add(width * shape_.hidden * (is_gated() ? 2 : 1), !frozen));
      layer.back.push_back(add(width * shape_.hidden, !frozen));
    }
    if (frozen) layer.adapter = {add(width * 16, true), add(width * 3 * 16, true)};
    return layer;
  }

  // Two convolutions over the frames, the second at half the rate.
  Tensor listen(const Tensor& frames) {
    Tensor x = tape_.linear(frames, 2 * kFeatures, shape_.width, *table_, nullptr);
    return tape_.pointwise(x);
  }

  Tensor run_layer(const Tensor& x, Layer& layer) {
    const auto whole = [this, &layer](Tensor in) {
      Tensor mid = tape_.residual(in, [&](Tensor h) { return attend(h, layer); });
      return tape_.residual(mid, [&](Tensor h) { return feed_forward(h, layer); });
    };
    const auto kept = [this, whole](Tensor in) {
      return recipe_.checkpoints ? tape_.checkpoint(in, whole) : whole(in);
    };
    if (recipe_.shards == 1) return kept(x);
    return tape_.gathered(x, layer.all, 1, kept);
  }

  Tensor attend(Tensor x, Layer& layer) {
    const std::uint64_t width = shape_.width;
    Tensor h = tape_.norm(x, batch_ * tokens_, *layer.norm1);
    Tensor qkv = tape_.linear(h, width, 3 * width, *layer.qkv, layer.qkv_bias);
    if (layer.adapter.down != nullptr) qkv = adapt(h, qkv, layer.adapter);
    h = {};
    const Tensor part{qkv.storage, qkv.elements / 3, qkv.width};
    qkv = {};
    const Tensor y = tape_.attention(part, part, part,
                                     {batch_, shape_.heads, tokens_, width / shape_.heads,
                                      tokens_, recipe_.flash});
    return tape_.linear(y, width, width, *layer.out, layer.out_bias);
  }

  // Low-rank adapters: their gradients and no others are kept.
  Tensor adapt(const Tensor& h, const Tensor& y, const Adapter& adapter) {
    const std::uint64_t rank = 16;
    const Tensor low = tape_.linear(h, shape_.width, rank, *adapter.down, nullptr);
    const Tensor high = tape_.linear(low, rank, 3 * shape_.width, *adapter.up, nullptr);
    Tensor sum = tape_.make(y.elements, y.width);
    tape_.program().run(3 * sum.bytes());
    return sum;
  }

  Tensor feed_forward(Tensor x, Layer& layer) {
    const std::uint64_t rows = batch_ * tokens_;
    Tensor h = tape_.norm(x, rows, *layer.norm2);
    if (layer.in.size() == 1) return multiply(h, layer, 0);
    return route(h, layer);
  }

  Tensor multiply(const Tensor& h, Layer& layer, std::size_t expert) {
    const std::uint64_t hidden = shape_.hidden;
    Tensor u = tape_.linear(h, shape_.width, hidden * (is_gated() ? 2 : 1),
                            *layer.in[expert], layer.in_bias);
    if (is_gated()) {
      const Tensor half{u.storage, u.elements / 2, u.width};
      u = tape_.gate(half, half);
    } else {
      u = tape_.pointwise(u);
    }
    return tape_.linear(u, hidden, shape_.width, *layer.back[expert], layer.back_bias);
  }

  // Tokens go to experts of their own choice: how many come to each differs every time.
  Tensor route(const Tensor& h, Layer& layer) {
    const std::uint64_t rows = batch_ * tokens_;
    {
      const Tensor scores = tape_.linear(h, shape_.width, kExperts, *layer.router, nullptr);
      const Tensor chosen = tape_.make(rows * kChosen, 8);
      const Tensor weights = tape_.make(rows * kChosen, 4);
      tape_.program().run(scores.bytes());
    }
    std::vector<Tape::Function> ways;
    std::uint64_t left = rows * kChosen;
    for (std::size_t i = 0; i < layer.in.size(); ++i) {
      const std::uint64_t even = left / (layer.in.size() - i);
      const std::uint64_t mine = i + 1 == layer.in.size()
                                     ? left
                                     : std::min(left, expert_shapes_.between(
                                                          even / 2, even + even / 2));
      left -= mine;
      if (mine == 0) continue;
      ways.push_back([this, mine, &layer, i](Tensor x) {
        Tensor own = tape_.make(mine * shape_.width, x.width);  // rows gathered
        tape_.program().run(2 * own.bytes());
        return multiply(own, layer, i);
      });
    }
    return tape_.branches(h, ways, rows * shape_.width);
  }

  Tape& tape_;
  const Recipe recipe_;
  const TransformerShape shape_;
  Random expert_shapes_;
  std::uint64_t batch_ = 1;
  std::uint64_t tokens_ = 1;
  Parameter* table_;
  Parameter* positions_;
  Parameter* last_norm_;
  Parameter* head_;
  std::vector<Layer> layers_;
};

}  // namespace

TransformerShape transformer_shape(std::uint32_t size) {
  return kShapes[std::min(size, kTransformerSizes - 1)];
}

std::unique_ptr<Model> make_transformer(Tape& tape, const Recipe& recipe) {
  return std::make_unique<Transformer>(tape, recipe);
}

}  // namespace tenon::synthesis
