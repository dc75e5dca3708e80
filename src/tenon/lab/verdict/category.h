// What a block of memory is for. Plain data and constant functions: thread-safe. O(1), and nothing
// throws.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tenon {

// What a block is for.
enum class Category : std::uint8_t {
  kWeights,         // parameters and buffers of modules, copies of them
  kGradients,       // of weights and of activations
  kOptimizerState,  // what an optimiser keeps from step to step
  kActivations,     // results of the forward pass; while training, what backward needs
  kTemporaries,     // gone before backward needs anything
  kWorkspaces,      // scratch memory of cuBLAS, cuDNN, CUB
  kCaches,          // keys and values of attention
  kInputs,          // batches
  kLoss,            // the loss and the logits that it is computed from
  kUnknown,
};
inline constexpr std::size_t kCategories = 10;

inline constexpr std::array<std::string_view, kCategories> kCategoryNames = {
    "weights",    "gradients", "optimizer state", "activations",     "temporaries",
    "workspaces", "KV caches", "inputs",          "loss and logits", "unknown"};

// As reports have it.
constexpr std::string_view category_name(Category category) {
  return kCategoryNames[static_cast<std::size_t>(category)];
}

// How a category was found.
enum class Confidence : std::uint8_t {
  kCertain,  // the stack or an annotation says it
  kLikely,   // the stack, the size and the life agree with it
  kGuess,    // size, order and life alone
};

// As reports have it.
constexpr std::string_view confidence_name(Confidence confidence) {
  constexpr std::array<std::string_view, 3> kNames = {"certain", "likely", "guess"};
  return kNames[static_cast<std::size_t>(confidence)];
}

// What one block is for, and how that was found.
struct BlockCategory {
  Category category = Category::kUnknown;
  Confidence confidence = Confidence::kGuess;
  bool of_weights = false;    // a gradient that stays for the optimiser
  std::uint32_t of_site = 0;  // of a gradient: the site (in Trace::sites) of the forward call
};

}  // namespace tenon
