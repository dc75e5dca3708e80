// Every policy on the stand-in driver: contents, failures, and memory given back.
#include <gmock/gmock.h>

#include "support/cuda_stand_in.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/random.h"
#include "rigs/content_stress.h"
#include "tenon/memory/policies.h"
#include "tenon/memory/gpu/stitched_allocator.h"

namespace tenon {
namespace {

using testing::StandIn;

// `null` hands out nothing, `host` is for memory that the host writes, `plan` needs a recording.
std::vector<std::string> policies_on_a_gpu() {
  std::vector<std::string> names;
  for (const Policy& policy : policies())
    if (policy.name != "null" && policy.name != "host" && !policy.needs_plan)
      names.push_back(policy.name);
  return names;
}

bool knows_other_streams(const std::string& policy) {
  return policy == "caching" || policy == "expandable" || policy == "stitched" ||
         policy == "unified";
}

class CudaPolicies : public ::testing::TestWithParam<std::string> {};

std::string policy_name(const ::testing::TestParamInfo<std::string>& info) { return info.param; }

// Work runs as late as the rules allow, so a block reused or unmapped too early is found.
TEST_P(CudaPolicies, KeepContentsOverSeveralStreams) {
  for (const int seed : {1, 2}) {
    const StandIn machine(fmt::format("lazy=1,capacity={},seed={}", 192 * kMiB, seed));
    const auto backend = machine.backend();
    const auto allocator = make_policy(GetParam(), *backend);
    ContentStressOptions options;
    options.seed = static_cast<std::uint64_t>(seed);
    options.operations = 900;
    options.max_bytes = 6 * kMiB;
    options.max_live_bytes = 120 * kMiB;
    options.empty_cache_chance = 0.01;
    options.stride = 509;
    if (!knows_other_streams(GetParam())) options.lend_chance = 0;
    const ContentStressResult result = run_content_stress(*backend, *allocator, options);
    EXPECT_EQ(result.wrong_words, 0u) << "seed " << seed;
    EXPECT_GT(result.allocations, 300u);
    allocator->check_invariants();
    allocator->empty_cache();
    backend->synchronize();
  }
}

TEST_P(CudaPolicies, KeepContentsOverSeveralThreads) {
  const StandIn machine(fmt::format("lazy=1,capacity={}", 256 * kMiB));
  const auto backend = machine.backend();
  const auto allocator = make_policy(GetParam(), *backend);
  ContentStressOptions options;
  options.operations = 1200;
  options.threads = 3;
  options.streams = 2;
  options.max_bytes = 4 * kMiB;
  options.max_live_bytes = 24 * kMiB;
  options.stride = 509;
  if (!knows_other_streams(GetParam())) options.lend_chance = 0;
  EXPECT_EQ(run_content_stress(*backend, *allocator, options).wrong_words, 0u);
  allocator->check_invariants();
}

// Blocks are freed in stream order, while their work is queued; the end of their policy waits.
TEST_P(CudaPolicies, TheirEndUnmapsNothingThatQueuedWorkUses) {
  const StandIn machine("lazy=1");
  const auto backend = machine.backend();
  auto allocator = make_policy(GetParam(), *backend);
  const Stream streams[] = {backend->create_stream(), backend->create_stream()};
  for (const std::size_t size : {std::size_t{1000}, 4 * kMiB, 30 * kMiB})
    for (const Stream stream : streams) {
      const DataPtr block = allocator->allocate_on(size, stream);
      // Each driver call may run one of them: some are left when pages are unmapped.
      for (int i = 0; i < 100; ++i) backend->fill(block.get(), 7, 1000, stream);
    }
  if (GetParam() != "system") {  // whose frees wait
    EXPECT_GT(machine.pending(), 0u);
  }
  allocator.reset();
  EXPECT_NO_THROW(backend->synchronize()) << "the device is lost where work finds nothing";
}

// Each driver call in turn lacks memory or fails; the policy goes on, whole, and leaks nothing.
TEST_P(CudaPolicies, SurviveEveryFailureOfTheDriver) {
  for (const char* function : {"cuMemAlloc_v2", "cuMemAddressReserve", "cuMemCreate", "cuMemMap",
                               "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cuEventRecord",
                               "cuEventQuery", "cuStreamWaitEvent"})
    for (const int error : {cu::kErrorOutOfMemory, cu::kErrorUnknown})
      for (const std::uint64_t nth : {1, 2, 5}) {
        SCOPED_TRACE(fmt::format("{} {} {}", function, error, nth));
        StandIn machine(fmt::format("capacity={}", 96 * kMiB));
        const auto backend = machine.backend();
        const auto allocator = make_policy(GetParam(), *backend);
        const Stream streams[] = {{backend->device(), 0}, backend->create_stream()};
        Random random(nth);
        std::vector<DataPtr> blocks;
        machine.fail(function, nth, error);
        for (int i = 0; i < 120; ++i) {
          try {
            if (random.chance(0.6))
              blocks.push_back(allocator->allocate_on(random.between(1, 12 * kMiB),
                                                      streams[random.below(2)]));
            else if (!blocks.empty())
              blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(
                                                random.below(blocks.size())));
          } catch (const OutOfMemory&) {
            if (!blocks.empty()) blocks.erase(blocks.begin());
          } catch (const DeviceError&) {
          }
        }
        allocator->check_invariants();
        blocks.clear();
        for (int again = 0; again < 2; ++again) ignore_refusal([&] { allocator->empty_cache(); });
        allocator->check_invariants();
        EXPECT_GE(backend->memory().free_bytes + allocator->reserved_bytes(), 95 * kMiB);
      }
}

TEST_P(CudaPolicies, EndOnADeviceThatIsLost) {
  StandIn machine;
  machine.expect_leaks();
  const auto backend = machine.backend();
  const auto allocator = make_policy(GetParam(), *backend);
  std::vector<DataPtr> blocks;
  blocks.push_back(allocator->allocate(30 * kMiB));
  machine.lose_device(1);
  EXPECT_THROW(
      {
        for (int i = 0; i < 100; ++i) blocks.push_back(allocator->allocate(70 * kMiB));
      },
      CudaError);
  blocks.clear();
}

TEST_P(CudaPolicies, LeaveMemoryToOtherProcesses) {
  StandIn machine(fmt::format("capacity={}", 256 * kMiB));
  const auto backend = machine.backend();
  const auto allocator = make_policy(GetParam(), *backend);
  machine.take(0, 200 * kMiB);
  EXPECT_THROW(static_cast<void>(allocator->allocate(120 * kMiB)), OutOfMemory);
  machine.take(0, 0);
  EXPECT_TRUE(allocator->allocate(100 * kMiB));
}

// An allocator that is told of other streams and forgets it: what the tests above would see.
class Forgetful final : public DeviceAllocator {
 public:
  explicit Forgetful(Backend& backend) : DeviceAllocator(backend), under_(backend) {}
  std::string name() const override { return "forgetful"; }
  DataPtr allocate_on(std::size_t size_bytes, Stream stream) override {
    return under_.allocate_on(size_bytes, stream);
  }
  void record_stream(const DataPtr&, Stream) override {}
  AllocatorStats stats() const override { return under_.stats(); }
  void reset_peak_stats() override { under_.reset_peak_stats(); }
  std::uint64_t layout_offset(const DataPtr& data) const override {
    return under_.layout_offset(data);
  }

 private:
  StitchedAllocator under_;
};

TEST(CudaContentStress, SeesMemoryThatIsReusedTooEarly) {
  std::uint64_t wrong_words = 0;
  for (int seed = 1; seed <= 3; ++seed) {
    const StandIn machine(fmt::format("lazy=1,seed={}", seed));
    const auto backend = machine.backend();
    Forgetful allocator(*backend);
    ContentStressOptions options;
    options.operations = 600;
    options.max_bytes = kMiB;
    options.max_live_bytes = 4 * kMiB;
    options.lend_chance = 0.6;
    wrong_words += run_content_stress(*backend, allocator, options).wrong_words;
  }
  EXPECT_GT(wrong_words, 0u);
}

INSTANTIATE_TEST_SUITE_P(StandIn, CudaPolicies, ::testing::ValuesIn(policies_on_a_gpu()),
                         policy_name);

}  // namespace
}  // namespace tenon
