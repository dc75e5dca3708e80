// libtorch on our tensors' memory. Built where CMake finds libtorch; a file apart from ours, since
// its headers define macros for everything.
#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <map>
#include <sstream>

#include "peer.h"

namespace tenon::bench {
namespace {

torch::Tensor borrowed(const Tensor& t) {
  const std::vector<std::int64_t> sizes(t.sizes().begin(), t.sizes().end());
  const std::vector<std::int64_t> strides(t.strides().begin(), t.strides().end());
  return torch::from_blob(const_cast<void*>(t.const_data_ptr()), sizes, strides, torch::kFloat32);
}

torch::Tensor call(const std::string& name, const std::vector<torch::Tensor>& in,
                   const std::vector<std::int64_t>& numbers) {
  if (name == "add") return in[0] + in[1];
  if (name == "mul") return in[0] * in[1];
  if (name == "exp") return in[0].exp();
  if (name == "sum") return in[0].sum();
  if (name == "sum0") return in[0].sum(0);
  if (name == "softmax") return in[0].softmax(-1);
  if (name == "layer_norm") return torch::layer_norm(in[0], {in[0].size(-1)}, in[1], in[2]);
  if (name == "matmul") return in[0].matmul(in[1]);
  if (name == "conv2d") return torch::conv2d(in[0], in[1], {}, numbers[0], numbers[1]);
  throw std::invalid_argument("peer: " + name);
}

}  // namespace

double peer_ns(const std::string& text, const std::vector<Tensor>& inputs, int threads) {
  const c10::InferenceMode inference;
  at::set_num_threads(threads);
  std::istringstream words(text);
  std::string name;
  words >> name;
  std::vector<std::int64_t> numbers;
  for (std::int64_t n; words >> n;) numbers.push_back(n);
  std::vector<torch::Tensor> in;
  for (const Tensor& input : inputs) in.push_back(borrowed(input));
  return measure_ns([&] {
    const torch::Tensor made = call(name, in, numbers);
    asm volatile("" : : "r"(made.unsafeGetTensorImpl()) : "memory");
  });
}

}  // namespace tenon::bench
