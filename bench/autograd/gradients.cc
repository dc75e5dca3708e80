// What recording and backward cost where the arithmetic is small, beside PyTorch, on one thread and
// on two.
#include <fmt/format.h>

#include "../ops/peer.h"
#include "../torch_name.h"
#include "peer_steps.h"
#include "tenon/autograd/autograd.h"
#include "tenon/base/parallel.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/random.h"

namespace tenon::bench {
namespace {

using namespace autograd;

// A ratio is PyTorch's time over ours.
void print(WorstRatio& worst, const std::string& what, double ours, double theirs, double target) {
  fmt::print("{:<34} {:>10.0f} {:>10} {:>8} {:>6}\n", what, ours,
             theirs == 0 ? "-" : fmt::format("{:.0f}", theirs),
             theirs == 0 ? "-" : fmt::format("{:.2f}x", theirs / ours), target);
  worst.add(what, ours, theirs);
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

void run(int threads) {
  set_num_threads(threads);
  fmt::print("\n{:<34} {:>10} {:>10} {:>8} {:>6}\n",
             fmt::format("nanoseconds, {} thread{}", threads, threads == 1 ? "" : "s"), "tenon",
             "PyTorch", "ratio", "target");
  WorstRatio worst;
  const auto chain = [&](const char* what, int elements) {
    print(worst, what, chain_ns(100, elements), torch_chain_ns(threads, 100, elements), 5);
  };
  chain("100 adds of 1, forward + backward", 1);
  chain("100 adds of 64, forward + backward", 64);
  chain("100 adds of 4096", 4096);
  fmt::print("{:<34} {:>10.0f}\n", "  of it the additions themselves", additions_ns(100, 4096));
  print(worst, "training step of a 2-8-1 net", step_ns(2, 8, 1, 4),
        torch_step_ns(threads, 2, 8, 1, 4), 5);
  print(worst, "the same of 784-256-10, batch 64", step_ns(784, 256, 10, 64),
        torch_step_ns(threads, 784, 256, 10, 64), 1.25);
  worst.print(threads);
}

}  // namespace
}  // namespace tenon::bench

int main() {
  tenon::bench::print_torch();
  for (const int threads : {1, 2}) tenon::bench::run(threads);
}
