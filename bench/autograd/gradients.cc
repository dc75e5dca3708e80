// What recording and backward cost where the arithmetic is small, beside libtorch.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "../ops/peer.h"
#include "peer_steps.h"
#include "tenon/autograd/autograd.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/random.h"

namespace tenon::bench {
namespace {

using namespace autograd;

void print(const std::string& what, double ours, double theirs, double target) {
  fmt::print("{:<34} {:>10.0f} {:>10.0f} {:>8} {:>6}\n", what, ours, theirs,
             theirs == 0 ? "-" : fmt::format("{:.2f}x", theirs / ours), target);
}

double chain_ns(int length, int elements) {
  const Tensor x = rand({elements}).set_requires_grad(true);
  const Tensor one = rand({elements});
  return measure_ns([&] {
    Tensor y = x;
    for (int i = 0; i < length; ++i) y = ops::add(y, one);
    backward(y, one);
    clear_grad(x);
  });
}

// The same additions, and nothing else.
double additions_ns(int length, int elements) {
  const Tensor x = rand({elements}), one = rand({elements});
  const NoGradGuard no_grad;
  return measure_ns([&] {
    Tensor y = x;
    for (int i = 0; i < length; ++i) y = ops::add(y, one);
  });
}

double step_ns(int inputs, int hidden, int outputs, int batch) {
  const Tensor w1 = rand({hidden, inputs}), b1 = rand({hidden});
  const Tensor w2 = rand({outputs, hidden}), b2 = rand({outputs});
  const Tensor all[] = {w1, b1, w2, b2};
  for (const Tensor& t : all) t.set_requires_grad(true);
  const Tensor x = rand({batch, inputs}), y = rand({batch, outputs});
  return measure_ns([&] {
    for (const Tensor& t : all) clear_grad(t);
    const Tensor loss = ops::mse_loss(ops::linear(ops::tanh(ops::linear(x, w1, b1)), w2, b2), y);
    backward(loss);
    const NoGradGuard no_grad;
    for (const Tensor& t : all) ops::sub_(t, ops::mul(t.grad(), 0.01));
  });
}

}  // namespace
}  // namespace tenon::bench

int main() {
  using namespace tenon::bench;
  tenon::set_num_threads(1);
  fmt::print("{:<34} {:>10} {:>10} {:>8} {:>6}\n", "nanoseconds, one thread", "tenon", "libtorch",
             "ratio", "target");
  print("100 adds of 1, forward + backward", chain_ns(100, 1), torch_chain_ns(100, 1), 5);
  print("100 adds of 64, forward + backward", chain_ns(100, 64), torch_chain_ns(100, 64), 5);
  print("100 adds of 4096", chain_ns(100, 4096), torch_chain_ns(100, 4096), 5);
  fmt::print("{:<34} {:>10.0f}\n", "  of it the additions themselves", additions_ns(100, 4096));
  print("training step of a 2-8-1 net", step_ns(2, 8, 1, 4), torch_step_ns(2, 8, 1, 4), 5);
  print("the same of 784-256-10, batch 64", step_ns(784, 256, 10, 64),
        torch_step_ns(784, 256, 10, 64), 1.25);
}
