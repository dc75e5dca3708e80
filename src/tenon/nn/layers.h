// Layers with weights, and those that have none. A layer computes what its operator (ops/)
// computes. Weights begin as f32, and an input has their dtype, as the operator demands.
// Threads: as Module. Complexity: as the operator. Throws InvalidArgument for wrong sizes when a
// layer is made, for wrong inputs when it is called; OutOfMemory.
#pragma once

#include <functional>
#include <string>

#include "tenon/nn/module.h"
#include "tenon/ops/conv.h"
#include "tenon/ops/pool.h"
#include "tenon/tensor/random.h"

namespace tenon::nn {

// Parameters begin as PyTorch's: uniform within 1 / sqrt(fan_in), embeddings normal. They come from
// the current allocator, their numbers from `generator`.

// [..., inputs] -> [..., outputs]: x weight^T + bias. O(elements of the result, times inputs).
class Linear final : public Module {
 public:
  Linear(std::int64_t inputs, std::int64_t outputs, bool bias = true,
         Generator& generator = default_generator());
  Tensor forward(const Tensor& input) override;

  Tensor weight;  // [outputs, inputs]
  Tensor bias;    // [outputs], or undefined
};

// [N, channels, H, W] -> [N, filters, H', W'], the sizes of ops::conv2d.
class Conv2d final : public Module {
 public:
  Conv2d(std::int64_t channels, std::int64_t filters, ops::Pair kernel,
         const ops::ConvOptions& options = {}, bool bias = true,
         Generator& generator = default_generator());
  Tensor forward(const Tensor& input) override;

  Tensor weight;  // [filters, channels / groups, height, width]
  Tensor bias;    // [filters], or undefined

 private:
  const ops::ConvOptions options_;
};

// [N, channels, L] -> [N, filters, L'], the size of ops::conv1d. The widths of the options count.
class Conv1d final : public Module {
 public:
  Conv1d(std::int64_t channels, std::int64_t filters, std::int64_t kernel,
         const ops::ConvOptions& options = {}, bool bias = true,
         Generator& generator = default_generator());
  Tensor forward(const Tensor& input) override;

  Tensor weight;  // [filters, channels / groups, kernel]
  Tensor bias;

 private:
  const ops::ConvOptions options_;
};

// Indices of any shape, of an integer dtype, -> [..., width]: rows of the weight. An index outside
// of [0, rows) throws InvalidArgument.
class Embedding final : public Module {
 public:
  Embedding(std::int64_t rows, std::int64_t width, Generator& generator = default_generator());
  Tensor forward(const Tensor& index) override;

  Tensor weight;  // [rows, width]
};

// In training, each element is 0 with the given probability, in [0, 1), and otherwise divided by
// its complement. Otherwise the input itself. The result has the input's shape and dtype, which is
// floating point. Masks come from `generator`, which must outlive the layer.
class Dropout final : public Module {
 public:
  explicit Dropout(double probability, Generator& generator = default_generator());
  Tensor forward(const Tensor& input) override;

 private:
  const double probability_;
  Generator& generator_;
};

// Any function of one tensor, for a Sequential: make_function([](const Tensor& x) { ... }). Shapes,
// dtypes and errors are the function's.
class Function final : public Module {
 public:
  explicit Function(std::function<Tensor(const Tensor&)> function)
      : function_(std::move(function)) {}
  Tensor forward(const Tensor& input) override { return function_(input); }

 private:
  const std::function<Tensor(const Tensor&)> function_;
};
// A Function that a Sequential takes.
std::shared_ptr<Module> make_function(std::function<Tensor(const Tensor&)> function);

// max(x, 0), as ops::relu. In place it overwrites an input that the caller alone holds; for inside
// a model, where another layer has just made it. What other code holds too (a node that saved it, a
// checkpoint) it does not touch.
std::shared_ptr<Module> relu(bool in_place = false);
// x Phi(x) by erf, as ops::gelu.
std::shared_ptr<Module> gelu();
// The dimensions from `start_dim` on joined to one.
std::shared_ptr<Module> flatten(std::int64_t start_dim = 1);
// As ops::max_pool2d, without padding. A stride of 0 is the kernel's size.
std::shared_ptr<Module> max_pool2d(ops::Pair kernel, ops::Pair stride = 0);

// One module after another, named "0", "1", ... Each takes the shape and dtype that the one before
// gives.
class Sequential final : public Module {
 public:
  Sequential() = default;
  explicit Sequential(const std::vector<std::shared_ptr<Module>>& parts);
  // Behind the others. Not thread-safe.
  void add(std::shared_ptr<Module> module);
  Tensor forward(const Tensor& input) override;

  // Runs the modules in this many segments of even length and keeps only what passes between them:
  // backward computes the rest again (Chen et al. 2016). 0 or 1: keeps everything. The square root
  // of the number of modules keeps least.
  void set_checkpoints(std::int64_t segments) { segments_ = segments; }
  std::size_t size() const { return modules().size(); }

 private:
  std::int64_t segments_ = 0;
};

}  // namespace tenon::nn
