// Training divided among ranks gives what one rank gives, to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>

#include "support/temporary.h"
#include "support/vulkan.h"
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
using Compute = std::optional<DType>;
constexpr Compute kComputes[] = {std::nullopt, DType::kBF16, DType::kF16};
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
           bool prefetch = true, Compute compute = {})
      : group_(group), slices_(kSlices / static_cast<std::uint64_t>(group->size())) {
    const auto build = [&] { return model = make_model(); };
    sharded = std::make_unique<ShardedModel>(build, group, shard, slices_, prefetch, compute);
    model->set_checkpoints(checkpoints);
    optimizer = std::make_unique<nn::Adam>(sharded->parts(), nn::AdamOptions{});
  }

  // The loss is multiplied by `scale`, the gradients divided by it.
  double step(std::uint64_t number, double scale = 1) {
    loss = 0;
    Generator generator(1000 + number);
    const Tensor batch = randint(0, 13, {kBatch, 9}, DType::kI64, generator);
    for (std::uint64_t i = 0; i < slices_; ++i) {
      const std::int64_t rows = kBatch / static_cast<std::int64_t>(kSlices);
      const Tensor mine = batch.narrow(
          0, static_cast<std::int64_t>(sharded->slice_number(i)) * rows, rows);
      sharded->begin_slice(i);
      const Tensor logits = to((*model)(mine.narrow(1, 0, 8)), DType::kF32).view({-1, 13});
      const Tensor mean =
          ops::cross_entropy(logits, contiguous(mine.narrow(1, 1, 8)).view({-1}));
      autograd::backward(mean, full({}, scale / static_cast<double>(kSlices)));
      loss += mean.item<double>() / static_cast<double>(slices_);
      sharded->end_slice();
    }
    sharded->finish_gradients();
    const double norm = sharded->gradient_norm() / scale;
    optimizer->step(nn::clip_factor(norm, 0.5) / scale);
    sharded->after_update();
    return norm;
  }

  std::uint64_t hash() {
    nn::StateHash hash;
    for (const nn::NamedTensor& part : model->named_state())
      sharded->with_parameter(part, [&](const Tensor& all) { hash.add({part.name, all}); });
    return hash.value();
  }

  std::shared_ptr<nn::CharGpt> model;
  std::unique_ptr<ShardedModel> sharded;
  std::unique_ptr<nn::Adam> optimizer;
  double loss = 0;  // of the last step, the mean over this rank's slices

 private:
  const std::shared_ptr<ProcessGroup> group_;
  const std::uint64_t slices_;
};

Training alone(Compute compute = {}) {
  return {std::make_shared<LoneGroup>(0, 1), Shard::kNothing, 0, true, compute};
}

void train_the_same(Compute compute) {
  Training one = alone(compute);
  std::vector<double> norms;
  for (std::uint64_t i = 0; i < 4; ++i) norms.push_back(one.step(i));
  ASSERT_GT(norms[0], 0.5) << "nothing is clipped";
  for (const Shard shard : kShards)
    for (const std::int64_t checkpoints : {0, 2, 3})
      for (const bool prefetch : {true, false}) {
        Training many(world, shard, checkpoints, prefetch, compute);
        for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(many.step(i), norms[i]);
        EXPECT_EQ(many.hash(), one.hash())
            << static_cast<int>(shard) << ", " << checkpoints << ", " << prefetch;
      }
}

TEST(ShardedModelTest, AnyShardOnAnyNumberOfRanksTrainsTheSame) {
  for (const Compute compute : kComputes) train_the_same(compute);
}

TEST(ShardedModelTest, MixedPrecisionLearnsAsF32Does) {
  for (const DType compute : {DType::kBF16, DType::kF16}) {
    Training exactly = alone(), mixed = alone(compute);
    const double scale = compute == DType::kF16 ? 1024 : 1;
    double first = 0, last = 0;
    for (std::uint64_t i = 0; i < 60; ++i) {  // six batches, again and again
      exactly.step(i % 6);
      mixed.step(i % 6, scale);
      EXPECT_NEAR(mixed.loss, exactly.loss, 0.02 * exactly.loss) << i;
      if (i == 0) first = mixed.loss;
      last = mixed.loss;
    }
    EXPECT_LT(last, 0.8 * first);
    EXPECT_NE(mixed.hash(), exactly.hash());
    for (const nn::NamedTensor& p : mixed.model->named_parameters())
      EXPECT_EQ(p.tensor.dtype(), compute) << p.name;
    for (const nn::NamedTensor& p : mixed.sharded->parts())
      EXPECT_EQ(p.tensor.dtype(), DType::kF32) << p.name;
  }
}

TEST(ShardedModelTest, AnOverflowIsSeenByAllRanks) {
  for (const Shard shard : kShards) {
    Training run(world, shard, 0, true, DType::kF16);
    EXPECT_TRUE(std::isfinite(run.step(0, 1024))) << static_cast<int>(shard);
    EXPECT_TRUE(std::isinf(run.step(1, 0x1p30))) << static_cast<int>(shard);
  }
}

TEST(ShardedModelTest, MixedPrecisionIsOf16Bits) {
  for (const DType dtype : {DType::kI32, DType::kF64, DType::kF32, DType::kF8E4M3})
    EXPECT_THROW(alone(dtype), InvalidArgument) << dtype_name(dtype);
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

// Six layers, of a width at which no unit needs padding.
std::shared_ptr<nn::CharGpt> make_even_model() {
  nn::GptOptions options;
  options.vocabulary = 16;
  options.width = 32;
  options.layers = 6;
  return std::make_shared<nn::CharGpt>(options);
}

// The most bytes in the memory of `at` while a rank makes its model on `device`.
std::uint64_t first_peak(Device at, Device device, int ranks, Shard shard, Compute compute = {}) {
  const auto policy = make_policy("system", *own_backend(at), {});
  StepMeter meter(*policy);
  const AllocatorGuard guard(at, meter);
  const ShardedModel model(make_even_model, std::make_shared<LoneGroup>(0, ranks), shard, 1, true,
                           compute, device);
  return meter.peak_bytes();
}

TEST(ShardedModelTest, TheFirstPeakIsThePartsAndOneLayer) {
  std::uint64_t all = 0, block = 0;
  for (const nn::NamedTensor& p : make_even_model()->named_parameters()) {
    all += p.tensor.nbytes();
    if (p.name.starts_with("blocks.0.")) block += p.tensor.nbytes();
  }
  for (const int ranks : {1, 2, 8})
    for (const Shard shard : kShards)
      for (const Compute compute : kComputes) {
        const std::uint64_t part = all / static_cast<unsigned>(ranks);
        std::uint64_t peak = shard == Shard::kParameters ? part + block : all;
        if (compute && shard == Shard::kNothing) peak = all + all / 2;
        if (compute && (shard == Shard::kOptimiser || shard == Shard::kGradients))
          peak = all / 2 + part + block;
        EXPECT_EQ(first_peak({}, {}, ranks, shard, compute), peak)
            << ranks << ", " << static_cast<int>(shard);
      }
  tenon::testing::choose_process_device();
  const Device vulkan{DeviceType::kVulkan, 0};
  EXPECT_EQ(first_peak(vulkan, vulkan, 8, Shard::kParameters), all / 8 + block);
  EXPECT_EQ(first_peak({}, vulkan, 8, Shard::kParameters), block);
}

void check_division(Shard shard, Compute compute) {
  const auto ranks = static_cast<std::uint64_t>(world->size());
  Training run(world, shard, 0, true, compute);
  std::uint64_t parameters = 0, last = 0;
  for (const nn::NamedTensor& p : run.model->named_parameters()) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(p.tensor.numel()) * sizeof(float);
    parameters += bytes;
    if (p.name.starts_with("blocks.2")) last += bytes;
  }
  const std::uint64_t wanted = shard == Shard::kNothing ? parameters : parameters / ranks;
  EXPECT_NEAR(run.sharded->part_bytes(), wanted, 8192);  // padding: 64 or 128 bytes a parameter

  // docs/distributed.md has the factors. Besides, digits of the norm are exchanged.
  const auto here = static_cast<double>(kSlices / ranks);
  const double narrow = compute ? 0.5 : 1;
  const double sums = compute && here == 1 ? 0.5 : 1;  // of one slice they have 16 bits
  const double factors[] = {sums + 1, sums + narrow, narrow * (1 + here), narrow * 3 * here};
  const std::uint64_t before = world->bytes_sent();
  run.step(0);
  const auto sent =
      static_cast<double>(world->bytes_sent() + run.sharded->bytes_to_share() - before);
  // The last layer stays gathered from forward to backward.
  const double kept = shard == Shard::kParameters ? narrow * here * static_cast<double>(last) : 0;
  const double known =
      static_cast<double>(ranks - 1) / static_cast<double>(ranks) *
      (factors[static_cast<int>(shard)] * static_cast<double>(parameters) - kept);
  EXPECT_NEAR(sent, known, 0.1 * known + 5000) << static_cast<int>(shard);
}

TEST(ShardedModelTest, PartsAndTrafficAreDivided) {
  for (const Shard shard : kShards)
    for (const Compute compute : kComputes) check_division(shard, compute);
}

TEST(ShardedModelTest, ParametersAreThereOnlyWhileTheyAreUsed) {
  Training run(world, Shard::kParameters);
  run.step(0);
  for (const nn::NamedTensor& p : run.model->named_parameters())
    EXPECT_EQ(p.tensor.storage().nbytes(), 0u) << p.name;
  std::size_t held = 0;
  run.sharded->with_parameter({"blocks.1.norm1.weight", {}}, [&](const Tensor&) {
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

// The next forward pass hides what after_update() leaves to gather.
TEST(ShardedModelTest, UpdatedParametersAreGatheredWhileTheNextForwardPassRuns) {
  for (const Shard shard : {Shard::kOptimiser, Shard::kGradients})
    for (const bool prefetch : {true, false}) {
      const auto group = std::make_shared<SlowGroup>();
      Training run(group, shard, 0, prefetch);
      run.step(0);
      EXPECT_EQ(group->in_flight, prefetch ? 3 : 0);
      EXPECT_GT(run.sharded->bytes_to_share(), 0u);
      const std::uint64_t before = group->bytes_sent();
      const std::uint64_t left = run.sharded->bytes_to_share();
      group->beside_another = 0;
      const NoGradGuard no_grad;
      (*run.model)(zeros({1, 8}, DType::kI64));
      EXPECT_EQ(group->beside_another, prefetch ? 1 : 0) << "the third layer";
      EXPECT_EQ(group->in_flight, 0);
      EXPECT_EQ(group->bytes_sent() - before, left);
      EXPECT_EQ(run.sharded->bytes_to_share(), 0u);
    }
}

// Saved by all ranks; read by all ranks with another shard, and by each rank alone.
TEST(ShardedModelTest, CheckpointsGoOnWithAnotherNumberOfRanks) {
  const tenon::testing::TemporaryFolder mine;
  const std::string folder = world->gather_texts(mine.path() + "/run")[0];
  int number = 0;
  for (const auto& [shard, compute] : std::vector<std::pair<Shard, Compute>>{
           {Shard::kParameters, {}}, {Shard::kNothing, {}}, {Shard::kParameters, DType::kBF16},
           {Shard::kGradients, DType::kBF16}, {Shard::kNothing, DType::kBF16}}) {
    Training one = alone(compute);
    for (std::uint64_t i = 0; i < 2; ++i) one.step(i);
    Training run(world, shard, 0, true, compute);
    for (std::uint64_t i = 0; i < 2; ++i) run.step(i);
    const std::string label = "step" + std::to_string(number++);
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
    Training again(world, Shard::kGradients, 0, true, compute), single = alone(compute);
    load_checkpoint(folder, *again.sharded, *again.optimizer);
    load_checkpoint(folder, *single.sharded, *single.optimizer);
    world->barrier();  // before the next save replaces the files
    EXPECT_EQ(again.hash(), one.hash());
    const auto whole = make_model();  // of f32: what files have
    load_checkpoint_weights(folder, *whole);
    EXPECT_EQ(nn::state_hash(whole->named_state()), one.hash());
    world->barrier();
    Training further = alone(compute);
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
