// Gradients: of a function, of its gradient, and along a chain that keeps little memory.
#include <fmt/format.h>

#include <cmath>

#include "tenon/autograd/autograd.h"
#include "tenon/memory/adaptors/statistics_adaptor.h"
#include "tenon/memory/registry.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/print.h"

using namespace tenon;

int main() {
  // f = sum(x^3), f' = 3 x^2, f'' = 6 x.
  const Tensor x = tensor<double>({1, 2, 3}).set_requires_grad(true);
  const Tensor f = ops::sum(x * x * x);
  const Tensor first = autograd::grad({f}, {x}, {}, {.create_graph = true})[0];
  const Tensor second = autograd::grad({ops::sum(first)}, {x})[0];
  fmt::print("f' {}\nf'' {}\n", to_string(first.detach()), to_string(second));

  // The most bytes that forward and backward of a deep chain hold, with and without checkpoints.
  const auto peak_of_chain = [](bool with_checkpoints) {
    StatisticsAdaptor counted(*current_allocator(Device{}));
    const AllocatorGuard guard(Device{}, counted);
    const Tensor start = full({64, 1024}, 0.5).set_requires_grad(true);
    const auto ten_steps = [](std::span<const Tensor> in) {
      Tensor h = in[0];
      for (int i = 0; i < 10; ++i) h = ops::sin(h) * 1.1;
      return h;
    };
    Tensor h = start;
    for (int block = 0; block < 10; ++block) {
      const Tensor in[] = {h};
      h = with_checkpoints ? autograd::checkpoint(ten_steps, in) : ten_steps(in);
    }
    autograd::backward(ops::mean(h));
    return counted.passed().bytes.peak;
  };
  const std::int64_t plain = peak_of_chain(false), checkpointed = peak_of_chain(true);
  fmt::print("a chain of 100 steps: {} KiB at most, {} KiB with checkpoints\n", plain / 1024,
             checkpointed / 1024);
  const bool right = std::abs(second.select(0, 2).item<double>() - 18) < 1e-9;
  return right && checkpointed < plain / 2 ? 0 : 1;
}
