// Iterations of generated training programs: how many there are is known.
#include "tenon/lab/planning/iterations_in_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <string>
#include <vector>

#include "lab/traces.h"
#include "tenon/base/random.h"
#include "tenon/trace/load.h"
#include "tenon/trace/trace_builder.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Program {
  std::size_t iterations = 3;
  std::size_t micro_steps = 1;   // gradients are accumulated over them
  std::size_t layers = 3;
  std::size_t evaluate_every = 0;  // iterations; 0: never
  bool shapes_vary = false;
  bool marks = false;   // the optimizer's steps are annotated
  bool stacks = false;
  bool keeps_graph = false;  // a leak: a block of each iteration stays
};

// Writes the events of a training run: weights, then steps of forward, backward and optimizer; the
// first step makes the optimizer's state.
class Trainer {
 public:
  Trainer(const Program& program, std::uint64_t seed) : program_(program), random_(seed) {
    const std::array<std::uint32_t, 3> step = {
        sites_.add_frame("_init_group", "site-packages/torch/optim/adamw.py", 120),
        sites_.add_frame("step", "site-packages/torch/optim/adamw.py", 200),
        sites_.add_frame("train", "train.py", 31)};
    const std::array<std::uint32_t, 1> model = {sites_.add_frame("forward", "model.py", 5)};
    if (program.stacks) {
      optimizer_site_ = sites_.add_site({sites_.add_stack(step), 0, 0});
      model_site_ = sites_.add_site({sites_.add_stack(model), 0, 0});
    }
    step_name_ = sites_.add_text("Optimizer.step#AdamW.step");
    for (std::size_t i = 0; i < program.layers; ++i)
      weights_.push_back(512 * random_.between(1, 4000));
  }

  Trace run() {
    for (const std::uint64_t size : weights_) alloc(size, model_site_);
    for (std::size_t i = 0; i < program_.iterations; ++i) {
      train_step(i == 0);
      if (program_.evaluate_every != 0 && (i + 1) % program_.evaluate_every == 0) evaluate();
    }
    return builder_.finish(std::make_shared<const SiteTable>(std::move(sites_)));
  }

  std::size_t step_events() const { return step_events_; }

 private:
  std::uint64_t alloc(std::uint64_t size, std::uint32_t site) {
    builder_.alloc(next_, now_++, size, 0, site);
    return next_++;
  }
  void free(std::uint64_t id) { builder_.free(TraceOp::kFreeCompleted, id, now_++); }

  void micro_step(std::vector<std::uint64_t>& gradients, std::uint64_t batch) {
    std::vector<std::uint64_t> saved;
    for (const std::uint64_t size : weights_) {
      const std::uint64_t temporary = alloc(size / 2 + 512 * batch, model_site_);
      saved.push_back(alloc(1024 * batch + size, model_site_));
      free(temporary);
    }
    const bool first = gradients.empty();
    for (std::size_t i = weights_.size(); i-- > 0;) {
      const std::uint64_t gradient = alloc(2048 * batch, model_site_);
      if (first) gradients.push_back(alloc(weights_[i], model_site_));
      free(saved[i]);
      free(gradient);
    }
  }

  void train_step(bool first) {
    const std::size_t begin = builder_.events();
    std::vector<std::uint64_t> gradients;
    const std::uint64_t batch = program_.shapes_vary ? random_.between(1, 500) : 64;
    for (std::size_t i = 0; i < program_.micro_steps; ++i) micro_step(gradients, batch);
    if (program_.keeps_graph) alloc(512, model_site_);
    mark(MarkKind::kPhaseBegin);
    for (const std::uint64_t size : weights_) {
      if (first) alloc(size, optimizer_site_);
      if (first) alloc(size, optimizer_site_);
      free(alloc(size, optimizer_site_));
    }
    mark(MarkKind::kPhaseEnd);
    for (const std::uint64_t gradient : gradients) free(gradient);
    step_events_ = builder_.events() - begin;
  }

  void evaluate() {
    for (std::size_t batch = 0; batch < 3; ++batch)
      for (const std::uint64_t size : weights_) free(alloc(size + 4096, model_site_));
  }

  void mark(MarkKind kind) {
    if (!program_.marks) return;
    TraceMark made;
    made.kind = kind;
    made.time_us = now_;
    made.text = step_name_;
    builder_.mark(made);
  }

  const Program program_;
  Random random_;
  SiteTable sites_;
  TraceBuilder builder_{"made"};
  std::uint32_t optimizer_site_ = 0;
  std::uint32_t model_site_ = 0;
  std::uint32_t step_name_ = 0;
  std::vector<std::uint64_t> weights_;
  std::uint64_t next_ = 1;
  std::int64_t now_ = 0;
  std::size_t step_events_ = 0;  // of the last step
};

Program random_program(std::uint64_t seed) {
  Random random(seed);
  Program program;
  program.iterations = random.between(2, 9);
  program.micro_steps = random.between(1, 5);
  program.layers = random.between(2, 7);
  program.evaluate_every = random.chance(0.4) ? random.between(1, 4) : 0;
  program.shapes_vary = random.chance(0.4);
  program.keeps_graph = random.chance(0.3);
  return program;
}

class GeneratedPrograms : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(GeneratedPrograms, CountTheStepsThatTheProgramMarks) {
  for (std::uint64_t seed = GetParam(); seed < GetParam() + 50; ++seed) {
    Program program = random_program(seed);
    program.marks = true;
    EXPECT_EQ(find_iterations_in(Trainer(program, seed).run()).ends.size(), program.iterations)
        << "seed " << seed;
  }
}

TEST_P(GeneratedPrograms, CountTheStepsThatStacksShow) {
  for (std::uint64_t seed = GetParam(); seed < GetParam() + 50; ++seed) {
    Program program = random_program(seed);
    program.stacks = true;
    const TraceIterations found = find_iterations_in(Trainer(program, seed).run());
    EXPECT_EQ(found.ends.size(), program.iterations) << "seed " << seed;
    EXPECT_THAT(found.found_by, HasSubstr("train train.py:31")) << "seed " << seed;
  }
}

TEST_P(GeneratedPrograms, NeverCountMoreThanThereAreWithoutEither) {
  for (std::uint64_t seed = GetParam(); seed < GetParam() + 50; ++seed) {
    const Program program = random_program(seed);
    EXPECT_LE(find_iterations_in(Trainer(program, seed).run()).ends.size(), program.iterations)
        << "seed " << seed;
  }
}

TEST_P(GeneratedPrograms, ProveWhatRepeatsItself) {
  for (std::uint64_t seed = GetParam(); seed < GetParam() + 50; ++seed) {
    Program program = random_program(seed);
    program.iterations = 4 + seed % 6;
    program.shapes_vary = false;
    program.evaluate_every = 0;
    Trainer trainer(program, seed);
    const TraceIterations found = find_iterations_in(trainer.run());
    // The first makes the optimizer's state and so is not like the others.
    ASSERT_GE(found.ends.size() + 1, program.iterations) << "seed " << seed;
    for (std::size_t i = 1; i < found.ends.size(); ++i)
      EXPECT_EQ(found.ends[i] - found.ends[i - 1], trainer.step_events()) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, GeneratedPrograms, ::testing::Values(1, 100'001, 7'000'001));

TEST(Iterations, AreNoneWhereShapesVaryAndNothingIsSaid) {
  Program program;
  program.iterations = 8;
  program.shapes_vary = true;
  EXPECT_THAT(find_iterations_in(Trainer(program, 3).run()).ends, IsEmpty());
}

TEST(Iterations, AreNotTheLayersOfOnePass) {
  for (std::size_t layers = 4; layers < 40; layers += 7) {
    testing::TraceMaker maker;
    std::uint64_t id = 0;
    for (std::size_t i = 0; i < layers; ++i) {  // forward: what backward needs stays
      maker.alloc(id + 1, 0, 4096).alloc(id + 2, 0, 1024).free(id + 2, 0);
      id += 2;
    }
    const Trace forward = maker.make();
    EXPECT_THAT(find_iterations_in(forward).ends, IsEmpty());
  }
  testing::TraceMaker maker;
  for (std::uint64_t i = 0; i < 30; ++i) maker.alloc(i, 0, 4096);
  for (std::uint64_t i = 30; i-- > 0;) maker.alloc(100 + i, 0, 512).free(100 + i, 0).free(i, 0);
  EXPECT_THAT(find_iterations_in(maker.make()).ends, IsEmpty()) << "forward and backward, once";
}

TEST(Iterations, OfARecordingOfTwoStepsAreTwo) {
  Program program;
  program.iterations = 2;
  program.micro_steps = 2;
  program.stacks = true;
  EXPECT_EQ(find_iterations_in(Trainer(program, 5).run()).ends.size(), 2u);
}

TEST(Iterations, OfNothingAreNone) {
  EXPECT_THAT(find_iterations_in(Trace{}).ends, IsEmpty());
  EXPECT_THAT(find_iterations_in(testing::TraceMaker().alloc(1, 0, 10).make()).ends, IsEmpty());
}

}  // namespace
}  // namespace tenon
