// Models by name: what a forward pass computes.
#pragma once

#include <cstdint>
#include <memory>

#include "tenon/base/random.h"
#include "tenon/lab/synthesis/recipe.h"
#include "tenon/lab/synthesis/tape.h"

namespace tenon::synthesis {

// Parameters, and a forward pass over them that ends in a loss. `batch` is in the recipe's terms;
// what varies is drawn from `shapes`. The input is made on the stream that is current in input().
class Model {
 public:
  Model() = default;
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  virtual Tensor input(std::uint64_t batch, Random& shapes) = 0;
  virtual Tensor forward(Tensor input) = 0;
};

// For recipes that train. Throws nothing; sizes beyond the largest are the largest.
std::unique_ptr<Model> make_model(Tape& tape, const Recipe& recipe);
// How many sizes a kind has.
std::uint32_t model_sizes(Kind kind);

std::unique_ptr<Model> make_transformer(Tape& tape, const Recipe& recipe);
std::unique_ptr<Model> make_image_model(Tape& tape, const Recipe& recipe);
std::unique_ptr<Model> make_recommender(Tape& tape, const Recipe& recipe);
std::unique_ptr<Model> make_graph_model(Tape& tape, const Recipe& recipe);

// What language models have in common with programs that generate text.
struct TransformerShape {
  std::uint64_t layers, width, heads, hidden, vocabulary, tokens;
};
inline constexpr std::uint32_t kTransformerSizes = 9;
TransformerShape transformer_shape(std::uint32_t size);

// A program that generates instead of training; the recipe says how.
void run_generation(Program& program, const Recipe& recipe);

}  // namespace tenon::synthesis
