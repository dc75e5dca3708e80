// Optimisers against their formulas in double precision, schedules and clipping.
#include "tenon/nn/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tenon/autograd/autograd.h"
#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/nn/schedule.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon::nn {
namespace {

std::vector<double> values(const Tensor& t) {
  const Tensor wide = to(contiguous(t.detach()), DType::kF64);
  const auto* data = wide.const_data_ptr<double>();
  return {data, data + wide.numel()};
}

// One parameter whose gradient at step i is a known tensor.
struct Problem {
  explicit Problem(DType dtype, std::int64_t count = 37) : dtype_(dtype) {
    Generator generator(11);
    parameter = randn({count}, dtype, generator);
    parameter.set_requires_grad(true);
    for (int i = 0; i < 5; ++i) gradients.push_back(randn({count}, dtype, generator));
  }
  std::vector<NamedTensor> named() const { return {{"p", parameter}}; }
  void give(std::size_t i) const { autograd::set_grad(parameter, gradients[i]); }
  double tolerance() const { return dtype_ == DType::kF64 ? 1e-12 : 2e-6; }

  const DType dtype_;
  Tensor parameter;
  std::vector<Tensor> gradients;
};

void expect_near(const Tensor& got, const std::vector<double>& wanted, double tolerance) {
  const std::vector<double> found = values(got);
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(found[i], wanted[i], tolerance);
}

void check_sgd(const SgdOptions& o, DType dtype) {
  const Problem problem(dtype);
  Sgd sgd(problem.named(), o);
  std::vector<double> p = values(problem.parameter);
  std::vector<double> v(p.size());
  for (std::size_t step = 0; step < problem.gradients.size(); ++step) {
    problem.give(step);
    sgd.step(0.5);
    const std::vector<double> g = values(problem.gradients[step]);
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double d = 0.5 * g[i] + o.weight_decay * p[i];
      v[i] = step == 0 ? d : o.momentum * v[i] + (1 - o.dampening) * d;
      const double way = o.momentum == 0 ? d : o.nesterov ? d + o.momentum * v[i] : v[i];
      p[i] -= o.learning_rate * way;
    }
    expect_near(problem.parameter, p, problem.tolerance());
  }
}

TEST(Sgd, FollowsItsFormula) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    check_sgd({0.1, 0, 0, 0, false}, dtype);
    check_sgd({0.1, 0, 0, 0.01, false}, dtype);
    check_sgd({0.1, 0.9, 0, 0.01, false}, dtype);
    check_sgd({0.1, 0.9, 0.3, 0, false}, dtype);
    check_sgd({0.1, 0.9, 0, 0.01, true}, dtype);
  }
}

void check_adam(const AdamOptions& o, DType dtype) {
  const Problem problem(dtype);
  Adam adam(problem.named(), o);
  std::vector<double> p = values(problem.parameter);
  std::vector<double> m(p.size()), v(p.size());
  for (std::size_t step = 0; step < problem.gradients.size(); ++step) {
    problem.give(step);
    adam.step();
    const std::vector<double> g = values(problem.gradients[step]);
    const double t = static_cast<double>(step) + 1;
    for (std::size_t i = 0; i < p.size(); ++i) {
      if (o.decoupled) p[i] -= o.learning_rate * o.weight_decay * p[i];
      const double d = g[i] + (o.decoupled ? 0 : o.weight_decay * p[i]);
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * d;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * d * d;
      const double mean = m[i] / (1 - std::pow(o.beta1, t));
      const double square = v[i] / (1 - std::pow(o.beta2, t));
      p[i] -= o.learning_rate * mean / (std::sqrt(square) + o.eps);
    }
    expect_near(problem.parameter, p, 10 * problem.tolerance());
  }
}

TEST(Adam, FollowsItsFormula) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    check_adam({}, dtype);
    check_adam({0.1, 0.8, 0.95, 1e-6, 0.1, false}, dtype);
    check_adam({0.1, 0.8, 0.95, 1e-6, 0.1, true}, dtype);
  }
}

TEST(Optimizer, IsTheSameOnAnyNumberOfThreads) {
  std::vector<std::vector<double>> results;
  for (const int threads : {1, 3}) {
    const int before = num_threads();
    set_num_threads(threads);
    const Problem problem(DType::kF32, 200003);
    Adam adam(problem.named(), {});
    problem.give(0);
    adam.step();
    results.push_back(values(problem.parameter));
    results.push_back({gradient_norm(problem.named())});
    set_num_threads(before);
  }
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(results[1], results[3]);
}

TEST(Optimizer, LeavesParametersWithoutGradientAlone) {
  const Problem problem(DType::kF32);
  Adam adam(problem.named(), {});
  const std::vector<double> before = values(problem.parameter);
  adam.step();
  EXPECT_EQ(values(problem.parameter), before);
  EXPECT_EQ(adam.updates(), std::vector<std::uint64_t>{0});
  problem.give(0);
  adam.step();
  EXPECT_EQ(adam.updates(), std::vector<std::uint64_t>{1});
  adam.zero_grad();
  EXPECT_FALSE(problem.parameter.grad().defined());
}

TEST(Optimizer, BumpsTheVersionOfWhatItChanges) {
  const Problem problem(DType::kF32);
  Sgd sgd(problem.named(), {});
  const std::uint32_t before = problem.parameter.version();
  problem.give(0);
  sgd.step();
  EXPECT_EQ(problem.parameter.version(), before + 1);
}

TEST(Optimizer, RefusesWhatItCannotDo) {
  EXPECT_THROW(Sgd({}, {}), InvalidArgument);
  const std::vector<NamedTensor> integers = {{"p", zeros({2}, DType::kI64)}};
  EXPECT_THROW(Sgd(integers, {}), InvalidArgument);
  const std::vector<NamedTensor> strided = {{"p", zeros({2, 3}).t()}};
  EXPECT_THROW(Sgd(strided, {}), InvalidArgument);
  const Problem problem(DType::kF32);
  EXPECT_THROW(Sgd(problem.named(), {.learning_rate = -1}), InvalidArgument);
  EXPECT_THROW(Sgd(problem.named(), {.learning_rate = NAN}), InvalidArgument);
  EXPECT_THROW(Sgd(problem.named(), {.nesterov = true}), InvalidArgument);
  EXPECT_THROW(Adam(problem.named(), {.beta1 = 1}), InvalidArgument);
}

TEST(Clipping, KeepsTheNormBelowTheLimit) {
  const Problem problem(DType::kF32);
  problem.give(0);
  double squares = 0;
  for (const double g : values(problem.gradients[0])) squares += g * g;
  const double norm = gradient_norm(problem.named());
  EXPECT_NEAR(norm, std::sqrt(squares), 1e-6);
  EXPECT_DOUBLE_EQ(clip_factor(norm, norm * 2), 1);
  EXPECT_NEAR(clip_factor(norm, 1) * norm, 1, 1e-12);
  EXPECT_TRUE(std::isnan(clip_factor(NAN, 1)));
}

TEST(Schedule, GoesAsItSays) {
  EXPECT_DOUBLE_EQ(constant_schedule()(7), 1);
  const Schedule steps = step_schedule(10, 0.5);
  EXPECT_DOUBLE_EQ(steps(9), 1);
  EXPECT_DOUBLE_EQ(steps(10), 0.5);
  EXPECT_DOUBLE_EQ(steps(25), 0.25);
  const Schedule cosine = cosine_schedule(100, 0.1);
  EXPECT_DOUBLE_EQ(cosine(0), 1);
  EXPECT_NEAR(cosine(50), 0.55, 1e-12);
  EXPECT_NEAR(cosine(100), 0.1, 1e-12);
  EXPECT_NEAR(cosine(1000), 0.1, 1e-12);
  const Schedule linear = linear_schedule(4);
  EXPECT_DOUBLE_EQ(linear(1), 0.75);
  EXPECT_DOUBLE_EQ(linear(9), 0);
  const Schedule warm = warmup_schedule(4, linear);
  EXPECT_DOUBLE_EQ(warm(0), 0.25);
  EXPECT_DOUBLE_EQ(warm(3), 1);
  EXPECT_DOUBLE_EQ(warm(5), 0.75);
  const Schedule cycle = one_cycle_schedule(100);
  EXPECT_NEAR(cycle(0), 0.04, 1e-12);
  EXPECT_NEAR(cycle(30), 1, 1e-12);
  EXPECT_LT(cycle(99), 0.01);
  EXPECT_THROW(step_schedule(0, 1), InvalidArgument);
}

}  // namespace
}  // namespace tenon::nn
