// PyTorch's side of bench_gradients, in a file apart since its headers define macros for
// everything.
#include "../ops/peer.h"
#include "../torch_peer.h"
#include "peer_steps.h"

namespace tenon::bench {

double torch_chain_ns(int threads, int length, int elements) {
  set_torch_threads(threads);
  const torch::Tensor x = torch::rand({elements}).set_requires_grad(true);
  const torch::Tensor one = torch::rand({elements});
  return measure_ns([&] {
    torch::Tensor y = x;
    for (int i = 0; i < length; ++i) y = y + one;
    y.backward(one);
    x.mutable_grad() = torch::Tensor();
  });
}

double torch_step_ns(int threads, int inputs, int hidden, int outputs, int batch) {
  set_torch_threads(threads);
  torch::nn::Linear first(inputs, hidden), second(hidden, outputs);
  std::vector<torch::Tensor> parameters = {first->weight, first->bias, second->weight,
                                           second->bias};
  torch::optim::SGD sgd(parameters, torch::optim::SGDOptions(0.01));
  const torch::Tensor x = torch::rand({batch, inputs}), y = torch::rand({batch, outputs});
  return measure_ns([&] {
    sgd.zero_grad();
    const torch::Tensor loss = torch::mse_loss(second->forward(torch::tanh(first->forward(x))), y);
    loss.backward();
    sgd.step();
  });
}

}  // namespace tenon::bench
