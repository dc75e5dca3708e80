// Training: a small network learns where two moons are. Each step's temporaries lie in a scope;
// after the first steps nothing is asked of the system any more.
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "tenon/autograd/autograd.h"
#include "tenon/memory/scopes/with_scope.h"
#include "tenon/nn/layers.h"
#include "tenon/nn/optimizer.h"
#include "tenon/nn/schedule.h"
#include "tenon/nn/state.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/random.h"

using namespace tenon;

int main() {
  constexpr std::int64_t kPoints = 256;
  Generator generator(1);
  const Tensor points = randn({kPoints, 2}, DType::kF32, generator) * 0.1;
  const Tensor labels = randint(0, 2, {kPoints}, DType::kI64, generator);
  for (std::int64_t i = 0; i < kPoints; ++i) {
    const bool second = labels.data_ptr<std::int64_t>()[i] == 1;
    const double angle = std::numbers::pi * static_cast<double>(i) / kPoints;
    float* point = points.data_ptr<float>() + 2 * i;
    point[0] += static_cast<float>(second ? 1 - std::cos(angle) : std::cos(angle));
    point[1] += static_cast<float>(second ? 0.5 - std::sin(angle) : std::sin(angle));
  }

  nn::Sequential model({std::make_shared<nn::Linear>(2, 32, true, generator), nn::relu(),
                        std::make_shared<nn::Linear>(32, 32, true, generator), nn::relu(),
                        std::make_shared<nn::Linear>(32, 2, true, generator)});
  nn::AdamW optimizer(model.named_parameters(), {.learning_rate = 1e-2});
  const nn::Schedule schedule = nn::cosine_schedule(200);

  const auto pool = current_scope_pool(Device{});
  double loss_value = 0;
  for (std::uint64_t step = 0; step < 200; ++step)
    with_scope(pool, [&] {
      const Tensor loss = ops::cross_entropy(model(points), labels);
      autograd::backward(loss);
      optimizer.set_learning_rate(1e-2 * schedule(step));
      optimizer.step(nn::clip_factor(nn::gradient_norm(optimizer.parameters()), 1));
      optimizer.zero_grad();
      loss_value = loss.item<double>();
    });

  const ScopePoolStats stats = pool->stats();
  const NoGradGuard no_grad;
  const Tensor right = ops::eq(ops::argmax(model(points), 1), labels);
  const auto hits = ops::sum(right).item<std::int64_t>();
  fmt::print("loss {:.4f}, {} of {} right\n", loss_value, hits, kPoints);
  fmt::print("{} scopes used {} calls of the allocator below; {} blocks escaped\n", stats.scopes,
             stats.upstream_calls, stats.escapes);
  fmt::print("weights {:016x}\n", nn::state_hash(model.named_state()));
  return hits > kPoints * 9 / 10 && stats.escapes == 0 ? 0 : 1;
}
