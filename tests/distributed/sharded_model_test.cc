// Training divided among ranks gives what one rank gives, to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>

#include "support/temporary.h"
#include "tenon/base/error.h"
#include "tenon/device/devices.h"
#include "tenon/distributed/checkpoint.h"
#include "tenon/distributed/exact_sum.h"
#include "tenon/distributed/lone_group.h"
#include "tenon/distributed/sharded_model.h"
#include "tenon/lab/step_meter.h"
#include "tenon/memory/policies.h"
#include "tenon/memory/registry.h"
#include "tenon/nn/models.h"
#include "tenon/nn/optimizer.h"
#include "tenon/ops/binary.h"
#include "tenon/ops/loss.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"
#include "world.h"

namespace tenon::distributed {
namespace {

using testing::world;

constexpr std::int64_t kBatch = 8;
constexpr std::uint64_t kSlices = 4;
constexpr Shard kShards[] = {Shard::kNothing, Shard::kOptimiser, Shard::kGradients,
                             Shard::kParameters};

std::shared_ptr<nn::CharGpt> make_model() {
  Generator generator(7);
  nn::GptOptions options;
  options.vocabulary = 13;
  options.length = 8;
  options.layers = 3;
  options.width = 20;  // so that units need padding
  options.heads = 2;
  return std::make_shared<nn::CharGpt>(options, generator);
}

// A model, divided, with its optimiser and data.
class Training {
 public:
  Training(std::shared_ptr<ProcessGroup> group, Shard shard, std::int64_t checkpoints = 0,
           bool prefetch = true)
      : group_(group), slices_(kSlices / static_cast<std::uint64_t>(group->size())) {
    const auto build = [&] { return model = make_model(); };
    sharded = std::make_unique<ShardedModel>(build, group, shard, slices_, prefetch);
    model->set_checkpoints(checkpoints);
    optimizer = std::make_unique<nn::Adam>(sharded->parts(), nn::AdamOptions{});
  }

  double step(std::uint64_t number) {
    Generator generator(1000 + number);
    const Tensor batch = randint(0, 13, {kBatch, 9}, DType::kI64, generator);
    for (std::uint64_t i = 0; i < slices_; ++i) {
      const std::int64_t rows = kBatch / static_cast<std::int64_t>(kSlices);
      const Tensor mine = batch.narrow(
          0, static_cast<std::int64_t>(sharded->slice_number(i)) * rows, rows);
      sharded->begin_slice(i);
      const Tensor loss =
          ops::cross_entropy((*model)(mine.narrow(1, 0, 8)).view({-1, 13}),
                             contiguous(mine.narrow(1, 1, 8)).view({-1}));
      autograd::backward(loss, full({}, 1.0 / static_cast<double>(kSlices)));
      sharded->end_slice();
    }
    sharded->finish_gradients();
    const double norm = sharded->gradient_norm();
    optimizer->step(nn::clip_factor(norm, 0.5));
    sharded->after_update();
    return norm;
  }

  std::uint64_t hash() {
    nn::StateHash hash;
    for (const nn::NamedTensor& part : model->named_state())
      sharded->with_parameter(part.name, [&] { hash.add(part); });
    return hash.value();
  }

  std::shared_ptr<nn::CharGpt> model;
  std::unique_ptr<ShardedModel> sharded;
  std::unique_ptr<nn::Adam> optimizer;

 private:
  const std::shared_ptr<ProcessGroup> group_;
  const std::uint64_t slices_;
};

Training alone() { return {std::make_shared<LoneGroup>(0, 1), Shard::kNothing}; }

TEST(ShardedModelTest, AnyShardOnAnyNumberOfRanksTrainsTheSame) {
  Training one = alone();
  std::vector<double> norms;
  for (std::uint64_t i = 0; i < 4; ++i) norms.push_back(one.step(i));
  ASSERT_GT(norms[0], 0.5) << "nothing is clipped";
  for (const Shard shard : kShards)
    for (const std::int64_t checkpoints : {0, 2, 3})
      for (const bool prefetch : {true, false}) {
        Training many(world, shard, checkpoints, prefetch);
        for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(many.step(i), norms[i]);
        EXPECT_EQ(many.hash(), one.hash())
            << static_cast<int>(shard) << ", " << checkpoints << ", " << prefetch;
      }
}

// Filled one layer after another it has the values of a model that is filled as a whole.
TEST(ShardedModelTest, ALayerAtATimeGetsTheSameValues) {
  const std::uint64_t whole = nn::state_hash(make_model()->named_state());
  for (const Shard shard : kShards) {
    EXPECT_EQ(Training(world, shard).hash(), whole) << static_cast<int>(shard);
    Training eager(world, shard);
    eager.model = make_model();
    eager.sharded = std::make_unique<ShardedModel>(eager.model, world, shard, 1);
    EXPECT_EQ(eager.hash(), whole) << static_cast<int>(shard);
  }
}

TEST(ShardedModelTest, TheFirstPeakIsThePartsAndOneLayer) {
  nn::GptOptions options;
  options.vocabulary = 16;
  options.width = 32;  // so that no unit needs padding
  options.layers = 6;
  const auto build = [&] { return std::make_shared<nn::CharGpt>(options); };
  std::uint64_t all = 0, block = 0;
  for (const nn::NamedTensor& p : build()->named_parameters()) {
    all += p.tensor.nbytes();
    if (p.name.starts_with("blocks.0.")) block += p.tensor.nbytes();
  }
  const auto policy = make_policy("system", *own_backend({}), {});
  for (const int ranks : {1, 2, 8})
    for (const Shard shard : kShards) {
      StepMeter meter(*policy);
      const AllocatorGuard guard({}, meter);
      const ShardedModel model(build, std::make_shared<LoneGroup>(0, ranks), shard, 1);
      const bool divided = shard == Shard::kParameters;
      EXPECT_EQ(meter.peak_bytes(), divided ? all / static_cast<unsigned>(ranks) + block : all)
          << ranks << ", " << static_cast<int>(shard);
    }
}

TEST(ShardedModelTest, PartsAndTrafficAreDivided) {
  const auto ranks = static_cast<std::uint64_t>(world->size());
  for (const Shard shard : kShards) {
    Training run(world, shard);
    std::uint64_t parameters = 0, last = 0;
    for (const nn::NamedTensor& p : run.model->named_parameters()) {
      const std::uint64_t bytes = static_cast<std::uint64_t>(p.tensor.numel()) * sizeof(float);
      parameters += bytes;
      if (p.name.starts_with("blocks.2")) last += bytes;
    }
    const std::uint64_t wanted = shard == Shard::kNothing ? parameters : parameters / ranks;
    EXPECT_NEAR(run.sharded->part_bytes(), wanted, 4096);  // padding: 64 bytes a parameter

    // docs/distributed.md has the factors. Besides, digits of the norm are exchanged.
    const std::uint64_t here = kSlices / ranks;
    const std::uint64_t factors[] = {2, 2, 1 + here, 3 * here};
    const std::uint64_t before = world->bytes_sent();
    run.step(0);
    const auto sent = static_cast<double>(world->bytes_sent() - before);
    // The last layer stays gathered from forward to backward.
    const std::uint64_t kept = shard == Shard::kParameters ? here * last : 0;
    const double known =
        static_cast<double>(ranks - 1) / static_cast<double>(ranks) *
        static_cast<double>(factors[static_cast<int>(shard)] * parameters - kept);
    EXPECT_NEAR(sent, known, 0.06 * known + 5000) << static_cast<int>(shard);
  }
}

TEST(ShardedModelTest, ParametersAreThereOnlyWhileTheyAreUsed) {
  Training run(world, Shard::kParameters);
  run.step(0);
  for (const nn::NamedTensor& p : run.model->named_parameters())
    EXPECT_EQ(p.tensor.storage().nbytes(), 0u) << p.name;
  std::size_t held = 0;
  run.sharded->with_parameter("blocks.1.norm1.weight", [&] {
    for (const nn::NamedTensor& p : run.model->named_parameters())
      held += p.tensor.storage().nbytes() > 0 ? 1 : 0;
  });
  EXPECT_EQ(held, 12u) << "one block's parameters";
}

// One rank of two. Its gathers are complete when they are waited for, not before.
class SlowGroup final : public ProcessGroup {
 public:
  SlowGroup() : ProcessGroup(0, 2) {}
  std::shared_ptr<ProcessGroup> split(int, int) override { return nullptr; }

  std::function<void()> at_start = [] {};  // of a gather
  int in_flight = 0;                       // gathers
  int beside_another = 0;                  // gathers that started while one was in flight

 private:
  struct Slow final : Transfer {
    explicit Slow(SlowGroup& owner) : group(owner) {}
    bool test() override { return false; }
    void wait() override { --group.in_flight; }
    SlowGroup& group;
  };
  std::unique_ptr<Transfer> all_gather_bytes(const void* in, void* out,
                                             std::size_t bytes) override {
    for (std::size_t i = 0; i < 2; ++i)
      std::memmove(static_cast<char*>(out) + i * bytes, in, bytes);
    beside_another += in_flight++ > 0 ? 1 : 0;
    at_start();
    return std::make_unique<Slow>(*this);
  }
  std::unique_ptr<Transfer> all_to_all_bytes(const void* in, void* out,
                                             std::size_t bytes) override {
    std::memmove(out, in, 2 * bytes);
    return nullptr;
  }
  std::unique_ptr<Transfer> broadcast_bytes(void*, std::size_t, int) override { return nullptr; }
  std::unique_ptr<Transfer> send_bytes(const void*, std::size_t, int) override { return nullptr; }
  std::unique_ptr<Transfer> receive_bytes(void*, std::size_t, int) override { return nullptr; }
};

// A link that is slower than computing always has a gather to carry, and memory has two layers.
TEST(ShardedModelTest, TheNextGatherStartsBeforeTheLastIsWaitedFor) {
  for (const bool prefetch : {true, false}) {
    const auto group = std::make_shared<SlowGroup>();
    Training run(group, Shard::kParameters, 0, prefetch);
    std::size_t most_layers = 0;
    group->at_start = [&] {
      std::size_t layers = 0;
      for (const nn::NamedTensor& p : run.model->named_parameters())
        layers += p.name.ends_with(".norm1.weight") && p.tensor.storage().nbytes() > 0 ? 1 : 0;
      most_layers = std::max(most_layers, layers);
    };
    run.step(0);
    // Of three layers: the last in forward, the first in backward.
    EXPECT_EQ(group->beside_another, prefetch ? 2 * (static_cast<int>(kSlices) / 2) : 0);
    EXPECT_EQ(most_layers, prefetch ? 2u : 1u);
    EXPECT_EQ(group->in_flight, 0);
  }
}

// Saved by all ranks; read by all ranks with another shard, and by each rank alone.
TEST(ShardedModelTest, CheckpointsGoOnWithAnotherNumberOfRanks) {
  const tenon::testing::TemporaryFolder mine;
  const std::string folder = world->gather_texts(mine.path() + "/run")[0];
  Training one = alone();
  for (std::uint64_t i = 0; i < 2; ++i) one.step(i);
  for (const Shard shard : {Shard::kParameters, Shard::kNothing}) {
    Training run(world, shard);
    for (std::uint64_t i = 0; i < 2; ++i) run.step(i);
    const std::string label = "step" + std::to_string(static_cast<int>(shard));
    save_checkpoint(folder, label, *run.sharded, *run.optimizer, *world, {{"step", "2"}});
    EXPECT_TRUE(is_checkpoint(folder));
    EXPECT_EQ(load_checkpoint_metadata(folder).at("step"), "2");
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      ++files;
      EXPECT_TRUE(entry.path().filename() == kIndexName ||
                  entry.path().filename().string().find(label) != std::string::npos)
          << entry.path() << " is of an earlier save";
    }
    EXPECT_EQ(files, 9u);  // two for each of four units, and the index
    Training again(world, Shard::kGradients), single = alone();
    load_checkpoint(folder, *again.sharded, *again.optimizer);
    load_checkpoint(folder, *single.sharded, *single.optimizer);
    world->barrier();  // before the next save replaces the files
    EXPECT_EQ(again.hash(), one.hash());
    Training further = alone();
    for (std::uint64_t i = 0; i < 3; ++i) further.step(i);
    again.step(2);
    single.step(2);
    EXPECT_EQ(again.hash(), further.hash());
    EXPECT_EQ(single.hash(), further.hash());
  }
}

TEST(ShardedModelTest, RanksThatDoNotSeeOneFolderSaveNothing) {
  if (world->size() == 1) GTEST_SKIP() << "of several ranks";
  const tenon::testing::TemporaryFolder mine;
  Training run(world, Shard::kParameters);
  try {
    save_checkpoint(mine.path(), "step0", *run.sharded, *run.optimizer, *world, {});
    ADD_FAILURE() << "saved";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("all ranks must see one folder"), std::string::npos)
        << error.what();
  }
  EXPECT_TRUE(std::filesystem::is_empty(mine.path()));
  if (world->rank() != 0) std::filesystem::remove(mine.path());
  const std::string missing = mine.path() + "/run";
  if (world->rank() == 0)
    CheckpointFolder(missing, *world);
  else
    EXPECT_THROW(CheckpointFolder(missing, *world), std::runtime_error);
  EXPECT_FALSE(std::filesystem::exists(missing));
}

TEST(ShardedModelTest, AFolderHasOneRunAtATime) {
  const tenon::testing::TemporaryFolder mine;
  LoneGroup alone(0, 1);
  {
    const CheckpointFolder first(mine.path() + "/run", alone);
    EXPECT_THROW(CheckpointFolder(mine.path() + "/run", alone), InvalidArgument);
    EXPECT_TRUE(std::filesystem::exists(mine.path() + "/run"));
  }
  EXPECT_FALSE(std::filesystem::exists(mine.path() + "/run")) << "nobody wrote to it";
  const CheckpointFolder second(mine.path() + "/run", alone);
}

TEST(ShardedModelTest, ACheckpointOfAnotherModelIsRefused) {
  const tenon::testing::TemporaryFolder mine;
  const std::string folder = world->gather_texts(mine.path() + "/run")[0];
  Training run(world, Shard::kOptimiser);
  save_checkpoint(folder, "step0", *run.sharded, *run.optimizer, *world, {});
  auto other = nn::make_mlp({});
  ShardedModel sharded(other, std::make_shared<LoneGroup>(0, 1), Shard::kNothing, 1);
  nn::Adam optimizer(sharded.parts(), {});
  EXPECT_THROW(load_checkpoint(folder, sharded, optimizer), ParseError);
  EXPECT_THROW(load_checkpoint_metadata(folder + "/nothing"), ParseError);
  world->barrier();
}

TEST(SquareSumTest, NoOrderAndNoDivisionChangesTheSum) {
  Generator generator(3);
  const Tensor values = ops::mul(randn({1000}, DType::kF32, generator),
                                 ops::pow(10.0, randint(-20, 15, {1000}, DType::kI64, generator)));
  SquareSum all, backwards, divided;
  const Tensor floats = to(values, DType::kF32);
  all.add(floats);
  for (std::int64_t i = 999; i >= 0; --i) backwards.add(clone(floats.narrow(0, i, 1)));
  EXPECT_EQ(all.value(), backwards.value());
  const std::int64_t piece = 1000 / world->size();
  divided.add(clone(floats.narrow(0, piece * world->rank(), piece)));
  divided.reduce(*world);
  SquareSum wanted;
  wanted.add(clone(floats.narrow(0, 0, piece * world->size())));
  EXPECT_EQ(divided.value(), wanted.value());
  double plain = 0;
  for (std::int64_t i = 0; i < 1000; ++i) plain += std::pow(floats[i].item<double>(), 2);
  EXPECT_NEAR(all.value() / plain, 1, 1e-12);
  SquareSum infinite;
  infinite.add(full({1}, std::nan("")));
  EXPECT_TRUE(std::isinf(infinite.value()));
}

}  // namespace
}  // namespace tenon::distributed
