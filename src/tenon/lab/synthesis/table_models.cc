// Models that look things up: recommenders, and nets over sampled graphs.
#include <algorithm>
#include <array>
#include <vector>

#include "tenon/lab/synthesis/model.h"

namespace tenon::synthesis {
namespace {

// Embedding tables of very different lengths, then products of all pairs and a few layers.
class Recommender final : public Model {
 public:
  Recommender(Tape& tape, const Recipe& recipe) : tape_(tape), recipe_(recipe) {
    Random random(recipe.seed + 31);
    columns_ = std::uint64_t{16} << std::min(recipe.size, 3U);
    const std::uint64_t tables = 8 + 2 * recipe.size;
    tape.set_shards(recipe.shards);
    for (std::uint64_t i = 0; i < tables; ++i) {
      const std::uint64_t longest = std::uint64_t{20'000} << recipe.size;
      const std::uint64_t rows = 10 + (longest >> random.below(12));
      tables_.push_back(&tape.parameter(rows * columns_));
    }
    tape.set_shards(1);
    std::uint64_t in = kDense;
    for (const std::uint64_t out : {512UL, 256UL, columns_}) in = add_layer(bottom_, in, out);
    in = columns_ * (tables + 1) / 2;
    for (const std::uint64_t out : {1'024UL, 1'024UL, 512UL, 256UL, 1UL})
      in = add_layer(top_, in, out);
  }

  Tensor input(std::uint64_t batch, Random& shapes) override {
    batch_ = 512 * batch;
    // How many values a feature has differs from batch to batch.
    for (Lookup& lookup : lookups_) lookup = {};
    lookups_.resize(tables_.size());
    for (Lookup& lookup : lookups_) {
      lookup.rows = recipe_.varying ? batch_ + shapes.below(3 * batch_) : batch_;
      lookup.indices = tape_.make(lookup.rows, 8);
    }
    Tensor made = tape_.make(batch_ * kDense, 4);
    tape_.program().run(made.bytes());
    return made;
  }

  Tensor forward(Tensor input) override {
    Tensor x = input;
    for (const Layer& layer : bottom_)
      x = tape_.pointwise(tape_.linear(x, layer.in, layer.out, *layer.weight, layer.bias));
    std::vector<Tape::Function> ways;
    for (std::size_t i = 0; i < tables_.size(); ++i)
      ways.push_back([this, i](const Tensor&) {
        return tape_.embed(lookups_[i].rows, columns_, *tables_[i], true);
      });
    const std::uint64_t joined = top_.front().in;
    x = tape_.branches(x, ways, batch_ * joined);
    for (const Layer& layer : top_)
      x = tape_.pointwise(tape_.linear(x, layer.in, layer.out, *layer.weight, layer.bias));
    return tape_.loss(x, batch_);
  }

 private:
  static constexpr std::uint64_t kDense = 13;
  struct Layer {
    std::uint64_t in, out;
    Parameter *weight, *bias;
  };
  struct Lookup {
    std::uint64_t rows = 0;
    Tensor indices;
  };

  std::uint64_t add_layer(std::vector<Layer>& layers, std::uint64_t in, std::uint64_t out) {
    layers.push_back({in, out, &tape_.parameter(in * out), &tape_.parameter(out)});
    return out;
  }

  Tape& tape_;
  const Recipe recipe_;
  std::uint64_t columns_ = 0;
  std::uint64_t batch_ = 1;
  std::vector<Parameter*> tables_;
  std::vector<Lookup> lookups_;
  std::vector<Layer> bottom_, top_;
};

// Messages along the edges of a sample, layer after layer.
class GraphNet final : public Model {
 public:
  GraphNet(Tape& tape, const Recipe& recipe) : tape_(tape), recipe_(recipe) {
    const std::uint64_t width = std::uint64_t{64} << std::min(recipe.size, 3U);
    std::uint64_t in = kFeatures;
    const std::uint64_t layers = 2 + recipe.size / 2;
    for (std::uint64_t i = 0; i < layers; ++i) {
      const std::uint64_t out = i + 1 == layers ? kClasses : width;
      layers_.push_back({in, out, &tape.parameter(in * out), &tape.parameter(in * out),
                         &tape.parameter(out)});
      in = out;
    }
  }

  Tensor input(std::uint64_t batch, Random& shapes) override {
    const std::uint64_t most = 1'000 * batch;
    nodes_ = recipe_.varying ? shapes.between(most / 16 + 1, most) : most;
    edges_ = nodes_ * (recipe_.varying ? shapes.between(5, 14) : 10);
    index_ = tape_.make(2 * edges_, 8);
    Tensor made = tape_.make(nodes_ * kFeatures, 4);
    tape_.program().run(made.bytes() + index_.bytes());
    return made;
  }

  Tensor forward(Tensor input) override {
    Tensor x = input;
    input = {};
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      x = tape_.residual(x, [&](Tensor own) {
        const Tensor gathered = gather(own, layer.in);
        return tape_.linear(gathered, layer.in, layer.out, *layer.neighbours, layer.bias);
      });
      if (i + 1 < layers_.size()) x = tape_.pointwise(x);
    }
    index_ = {};
    return tape_.loss(x, nodes_);
  }

 private:
  static constexpr std::uint64_t kFeatures = 128;
  static constexpr std::uint64_t kClasses = 47;
  struct Layer {
    std::uint64_t in, out;
    Parameter *neighbours, *self, *bias;
  };

  // A row for each edge, then their means for each node; backward the same the other way round.
  Tensor gather(const Tensor& x, std::uint64_t columns) {
    const std::vector<Tape::Function> way = {[this, columns](const Tensor& all) {
      Tensor messages = tape_.make(edges_ * columns, all.width);
      tape_.program().run(2 * messages.bytes());
      return messages;
    }};
    return tape_.branches(x, way, nodes_ * columns);
  }

  Tape& tape_;
  const Recipe recipe_;
  std::uint64_t nodes_ = 1, edges_ = 1;
  Tensor index_;
  std::vector<Layer> layers_;
};

}  // namespace

std::unique_ptr<Model> make_recommender(Tape& tape, const Recipe& recipe) {
  return std::make_unique<Recommender>(tape, recipe);
}

std::unique_ptr<Model> make_graph_model(Tape& tape, const Recipe& recipe) {
  return std::make_unique<GraphNet>(tape, recipe);
}

}  // namespace tenon::synthesis
