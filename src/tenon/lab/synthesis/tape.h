// Operators of a model: what each allocates forward, saves, and allocates backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "tenon/lab/synthesis/program.h"

namespace tenon::synthesis {

// A tensor, as far as memory goes.
struct Tensor {
  StoragePtr storage;
  std::uint64_t elements = 0;
  std::uint64_t width = 4;  // bytes of an element

  std::uint64_t bytes() const { return elements * width; }
};

// A tensor of images: n x channels x height x width.
struct Image {
  Tensor tensor;
  std::uint64_t n = 0, channels = 0, height = 0, width = 0;
};

// What is trained, or frozen.
struct Parameter {
  Tensor data;
  Tensor gradient;
  Tensor cast;       // the copy that mixed precision computes with, while a forward pass lasts
  StoragePtr state[2];
  std::uint64_t elements = 0;  // of the whole; data may be a shard
  bool trained = true;
};

// How numbers are kept.
enum class Precision : std::uint8_t {
  kSingle,  // 4 bytes
  kMixed,   // parameters of 4 bytes, products and convolutions of 2 (PyTorch's autocast)
  kHalf,    // 2 bytes throughout
};

// Records operators and runs backward over them, in reverse order. An operator's saved tensors are
// those that its node holds; they go when the node has run. Without recording nothing is saved.
class Tape {
 public:
  using Function = std::function<Tensor(Tensor)>;

  Tape(Program& program, Precision precision) : program_(program), precision_(precision) {}

  Program& program() { return program_; }
  std::uint64_t parameter_width() const { return precision_ == Precision::kHalf ? 2 : 4; }
  std::uint64_t compute_width() const { return precision_ == Precision::kSingle ? 4 : 2; }

  // --- Parameters.
  // Parameters that are made while shards exceed 1 keep that part of their data only.
  Parameter& parameter(std::uint64_t elements, bool trained = true);
  std::deque<Parameter>& parameters() { return parameters_; }
  void set_shards(std::uint64_t shards) { shards_ = shards; }
  // What mixed precision kept for the forward pass goes.
  void end_forward();

  // --- Tensors.
  Tensor make(std::uint64_t elements, std::uint64_t width);
  Tensor cast(const Tensor& x, std::uint64_t width);
  // y = f(x) of the same shape; `saved_bytes` is kept besides x (a mask, say).
  Tensor pointwise(const Tensor& x, std::uint64_t saved_bytes = 0);
  // x1 * f(x2): gates.
  Tensor gate(const Tensor& a, const Tensor& b);
  Tensor linear(const Tensor& x, std::uint64_t in, std::uint64_t out, Parameter& weight,
                Parameter* bias);
  // Layer and group normalisation.
  Tensor norm(const Tensor& x, std::uint64_t rows, Parameter& scale);
  // Rows of a table, by index; the gradient of a sparse one is of these rows alone.
  Tensor embed(std::uint64_t rows, std::uint64_t columns, Parameter& table, bool sparse = false);
  // Mean loss over rows; returns its gradient's source.
  Tensor loss(const Tensor& logits, std::uint64_t rows);
  // Backward leaves the gradients of queries, keys and values in one tensor.
  struct AttentionShape {
    std::uint64_t batch, heads, tokens, head_size;
    std::uint64_t keys;   // tokens attended to
    bool flash = true;    // without the matrix of scores
  };
  Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionShape& shape);

  Image conv(const Image& x, std::uint64_t out_channels, std::uint64_t kernel,
             std::uint64_t stride, Parameter& weight);
  Image batch_norm(const Image& x, Parameter& scale);
  Image pointwise(const Image& x, bool in_place = false);
  // Half or twice as many pixels on both sides.
  Image halve(const Image& x);
  Image twice(const Image& x);

  // --- Structure.
  // x + f(x).
  Tensor residual(const Tensor& x, const Function& f);
  // x and an earlier result, joined along channels. mark_skip() belongs right after that result was
  // made; what was marked last is joined first.
  Image join(const Image& x, const Image& from);
  void mark_skip();
  // f without saved tensors; runs again in backward.
  Tensor checkpoint(const Tensor& x, const Function& f);
  // Several ways from x, whose results are joined into one tensor of `elements`.
  Tensor branches(const Tensor& x, const std::vector<Function>& ways, std::uint64_t elements);
  // f, whose parameters are gathered from all devices for it by a stream of communication.
  Tensor gathered(const Tensor& x, const std::vector<Parameter*>& layer, std::uint32_t stream,
                  const Function& f);

  bool recording() const { return recording_; }
  void set_recording(bool on) { recording_ = on; }
  void backward();
  void accumulate(Parameter& parameter, Tensor gradient);

 private:
  using Node = std::function<Tensor(Tensor)>;

  void push(Node node);
  Tensor run_nodes(Tensor gradient);
  std::vector<Node> record(const std::function<void()>& f);
  Tensor weight_of(Parameter& weight);
  Tensor add(const Tensor& a, const Tensor& b);
  void scratch(std::uint64_t bytes);

  Program& program_;
  const Precision precision_;
  std::uint64_t shards_ = 1;
  bool recording_ = true;
  std::deque<Parameter> parameters_;  // stable addresses
  std::vector<Node> nodes_;
  std::vector<Tensor> skips_;         // gradients that wait for the place they belong to
  std::vector<StoragePtr> gathered_;
};

}  // namespace tenon::synthesis
