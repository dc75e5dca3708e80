// The same models in PyTorch, written as its users write them. Built where CMake finds it.
#include "../torch_peer.h"

#include <cmath>
#include <map>

#include "peer.h"

namespace tenon::bench {
namespace {

class TorchPeer final : public Peer {
 public:
  TorchPeer(const Case& what, const std::vector<nn::NamedTensor>& weights, int threads)
      : what_(what), threads_(threads) {
    std::vector<torch::Tensor> parameters;
    for (const nn::NamedTensor& weight : weights) {
      weights_[weight.name] = borrowed(weight.tensor).clone().set_requires_grad(true);
      parameters.push_back(weights_[weight.name]);
    }
    if (what.optimizer == "sgd")
      optimizer_ = std::make_unique<torch::optim::SGD>(
          parameters, torch::optim::SGDOptions(what.learning_rate).momentum(0.9));
    else
      optimizer_ = std::make_unique<torch::optim::Adam>(
          parameters, torch::optim::AdamOptions(what.learning_rate));
  }

  double step(const Tensor& input, const Tensor& target) override {
    set_torch_threads(threads_);
    double loss_value = 0;
    {
      const torch::Tensor x = borrowed(input);
      const torch::Tensor y = borrowed(target);
      const torch::Tensor loss = loss_of(x, y);
      loss.backward();
      optimizer_->step();
      for (auto& group : optimizer_->param_groups())
        for (torch::Tensor& parameter : group.params()) parameter.mutable_grad() = torch::Tensor();
      loss_value = loss.item<double>();
    }
    return loss_value;
  }

 private:
  const torch::Tensor& w(const std::string& name) { return weights_.at(name); }
  torch::Tensor linear(const torch::Tensor& x, const std::string& name) {
    return torch::linear(x, w(name + ".weight"), w(name + ".bias"));
  }

  torch::Tensor loss_of(const torch::Tensor& x, const torch::Tensor& y) {
    if (what_.name == "mlp")
      return torch::cross_entropy_loss(
          linear(linear(linear(x.flatten(1), "1").relu_(), "3").relu_(), "5"), y);
    if (what_.name == "cnn") {
      auto h = torch::max_pool2d(torch::conv2d(x, w("0.weight"), w("0.bias"), 1, 1).relu_(), 2);
      h = torch::max_pool2d(torch::conv2d(h, w("3.weight"), w("3.bias"), 1, 1).relu_(), 2);
      return torch::cross_entropy_loss(linear(linear(h.flatten(1), "7").relu_(), "9"), y);
    }
    if (what_.name == "2-8-1") return torch::mse_loss(linear(torch::tanh(linear(x, "0")), "2"), y);
    return torch::cross_entropy_loss(gpt(x).view({-1, what_.gpt.vocabulary}), y.view({-1}));
  }

  torch::Tensor norm(const torch::Tensor& x, const std::string& name) {
    return torch::layer_norm(x, {what_.gpt.width}, w(name + ".weight"), w(name + ".bias"));
  }
  torch::Tensor attention(const torch::Tensor& x, const std::string& name) {
    const std::int64_t n = x.size(0), length = x.size(1), heads = what_.gpt.heads;
    const std::int64_t size = what_.gpt.width / heads;
    const torch::Tensor all = linear(x, name + ".project").view({n, length, 3, heads, size});
    const auto parts = all.permute({2, 0, 3, 1, 4}).unbind(0);
    torch::Tensor scores =
        parts[0].matmul(parts[1].transpose(-2, -1)) / std::sqrt(static_cast<double>(size));
    if (!hidden_.defined()) hidden_ = torch::triu(torch::ones({length, length}, torch::kBool), 1);
    scores = scores.masked_fill(hidden_, -INFINITY).softmax(-1);
    const torch::Tensor seen = scores.matmul(parts[2]).transpose(1, 2);
    return linear(seen.reshape({n, length, what_.gpt.width}), name + ".out");
  }
  torch::Tensor gpt(const torch::Tensor& index) {
    torch::Tensor x =
        torch::embedding(w("tokens.weight"), index) + w("places").narrow(0, 0, index.size(1));
    for (std::int64_t i = 0; i < what_.gpt.layers; ++i) {
      const std::string block = "blocks." + std::to_string(i);
      x = x + attention(norm(x, block + ".norm1"), block + ".attention");
      x = x + linear(torch::gelu(linear(norm(x, block + ".norm2"), block + ".widen"), "tanh"),
                     block + ".narrow");
    }
    return torch::linear(norm(x, "norm"), w("head.weight"));
  }

  const Case what_;
  const int threads_;
  std::map<std::string, torch::Tensor> weights_;
  torch::Tensor hidden_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

}  // namespace

std::unique_ptr<Peer> make_peer(const Case& what, const std::vector<nn::NamedTensor>& weights,
                                int threads) {
  return std::make_unique<TorchPeer>(what, weights, threads);
}

std::uint64_t peer_peak_of(const Case& what, const std::vector<nn::NamedTensor>& weights,
                           int threads) {
  return peak_of_torch([&] {
    const auto peer = make_peer(what, weights, threads);
    for (int i = 0; i < 3; ++i) peer->step(what.input, what.target);
  });
}

}  // namespace tenon::bench
