// What stands on a GPU beside the policies: pinned memory, private pools, replays.
#include <gmock/gmock.h>

#include <cstring>

#include "support/cuda_stand_in.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/random.h"
#include "tenon/lab/hardware/hardware_replay.h"
#include "tenon/memory/gpu/pinned_allocator.h"
#include "tenon/memory/gpu/private_pool.h"
#include "tenon/trace/load.h"

namespace tenon {
namespace {

using testing::StandIn;

// --- Pinned memory.

TEST(PinnedMemory, IsRoundedExactlyAndGivenBack) {
  const StandIn machine;
  const auto backend = machine.backend();
  PinnedAllocator pinned(*backend);
  DataPtr large = pinned.allocate(33 * kMiB + 1);  // a power of two would take 64 MiB
  EXPECT_EQ(machine.pinned(), 33 * kMiB + 4096);
  std::memset(large.get(), 1, 33 * kMiB + 1);
  std::vector<DataPtr> small;
  for (int i = 0; i < 100; ++i) small.push_back(pinned.allocate(1000));
  EXPECT_EQ(machine.pinned(), 35 * kMiB + 4096) << "small ones share a segment";
  large.clear();
  DataPtr again = pinned.allocate(20 * kMiB);
  EXPECT_EQ(machine.pinned(), 35 * kMiB + 4096) << "cached";
  again.clear();
  small.clear();
  EXPECT_EQ(pinned.stats().allocated_bytes[0].current, 0);
  pinned.check_invariants();
  pinned.empty_cache();
  EXPECT_EQ(machine.pinned(), 0u);
}

// A copy from the block is queued; whoever gets the block next writes it on the host at once.
TEST(PinnedMemory, IsNotReusedWhileCopiesAreQueued) {
  for (int seed = 1; seed <= 3; ++seed) {
    const StandIn machine(fmt::format("lazy=1,seed={}", seed));
    const auto backend = machine.backend();
    PinnedAllocator pinned(*backend);
    const Stream streams[] = {backend->create_stream(), backend->create_stream(),
                              {backend->device(), 0}};
    constexpr std::size_t kSize = 64 * kKiB;
    const auto device = backend->allocate_segment(100 * kSize);
    for (int i = 0; i < 100; ++i) {
      DataPtr block = pinned.allocate_on(kSize, streams[0]);
      std::memset(block.get(), i, kSize);
      const Stream used = streams[i % 3];
      backend->copy(static_cast<char*>(device->base) + i * kSize, block.get(), kSize, used);
      pinned.record_stream(block, used);
    }
    std::vector<char> back(100 * kSize);
    backend->synchronize();
    backend->copy(back.data(), device->base, back.size(), streams[0]);
    for (int i = 0; i < 100; ++i)
      EXPECT_EQ(back[static_cast<std::size_t>(i) * kSize + 77], static_cast<char>(i));
    EXPECT_LT(machine.pinned(), 20 * kMiB);
    backend->free_segment(*device);
  }
}

TEST(PinnedMemory, GrowsBlocksInPlaceAndShowsThem) {
  const StandIn machine("lazy=1");
  const auto backend = machine.backend();
  PinnedAllocator pinned(*backend);
  DataPtr block = pinned.allocate_on(1000, backend->create_stream());
  void* const address = block.get();
  EXPECT_TRUE(pinned.try_grow(block, 100 * kKiB));
  EXPECT_EQ(block.get(), address);
  EXPECT_GE(pinned.usable_size(block), 100 * kKiB);
  const std::vector<SegmentInfo> segments = pinned.snapshot();
  ASSERT_EQ(segments.size(), 1u);
  EXPECT_EQ(segments[0].size_bytes, 2 * kMiB);
  ASSERT_FALSE(segments[0].blocks.empty());
  EXPECT_EQ(segments[0].blocks[0].requested_bytes, 100 * kKiB);
  block.clear();
  pinned.check_invariants();
  pinned.empty_cache();
  EXPECT_EQ(machine.pinned(), 0u);
}

TEST(PinnedMemory, RunsOutByItsLimitWithTheNumbers) {
  const StandIn machine;
  const auto backend = machine.backend();
  PinnedAllocator pinned(*backend, 8 * kMiB);
  DataPtr kept = pinned.allocate(3 * kMiB);
  pinned.allocate(4 * kMiB).clear();
  DataPtr other = pinned.allocate(5 * kMiB);  // the cached segment goes first
  EXPECT_THROW(static_cast<void>(pinned.allocate(kMiB + 1)), OutOfMemory);
  EXPECT_THROW(pinned.record_stream(DataPtr(&pinned, {}), {backend->device(), 0}),
               InvalidPointer);
  EXPECT_EQ(pinned.stats().num_ooms, 1);
}

TEST(PinnedMemory, SurvivesAnythingAtRandom) {
  StandIn machine("lazy=1,seed=9");
  const auto backend = machine.backend();
  PinnedAllocator pinned(*backend, 64 * kMiB);
  const Stream streams[] = {backend->create_stream(), backend->create_stream()};
  Random random(5);
  std::vector<DataPtr> blocks;
  for (int i = 0; i < 3000; ++i) {
    if (i % 200 == 0) machine.fail("cuMemHostAlloc", 1, cu::kErrorOutOfMemory);
    if (i % 300 == 0) pinned.empty_cache();
    if (blocks.size() < 40 && random.chance(0.55)) {
      blocks.push_back(pinned.allocate_on(random.between(1, kMiB), streams[random.below(2)]));
      static_cast<char*>(blocks.back().get())[0] = 'x';
    } else if (!blocks.empty()) {
      pinned.record_stream(blocks.back(), streams[random.below(2)]);
      blocks.pop_back();
    }
    if (i % 50 == 0) pinned.check_invariants();
  }
}

// --- Private pools.

TEST(PrivatePoolTest, KeepsItsMemoryUntilItIsLetGo) {
  const StandIn machine("lazy=1");
  const auto backend = machine.backend();
  PrivatePool pool(*backend);
  const Stream stream = backend->create_stream();
  DataPtr small = pool.allocate_on(1000, stream);
  DataPtr large = pool.allocate_on(9 * kMiB, stream);
  EXPECT_EQ(machine.used(), 12 * kMiB) << "2 MiB, and 9 MiB in whole pages";
  void* const address = large.get();
  backend->fill(address, 1, 9 * kMiB, stream);
  large.clear();
  pool.empty_cache();
  EXPECT_EQ(machine.used(), 12 * kMiB);
  EXPECT_EQ(pool.allocate_on(9 * kMiB, stream).get(), address);
  pool.allow_release();
  EXPECT_EQ(machine.used(), 2 * kMiB) << "the small block's";
  small.clear();
  pool.empty_cache();
  EXPECT_EQ(machine.used(), 0u);
  pool.check_invariants();
}

TEST(PrivatePoolTest, RollsBackWhatFailsHalfway) {
  for (const char* function : {"cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"})
    for (const int error : {cu::kErrorOutOfMemory, cu::kErrorUnknown}) {
      StandIn machine;
      const auto backend = machine.backend();
      int asked = 0;
      PrivatePool pool(*backend, [&] { ++asked; });
      machine.fail(function, 1, error);
      if (error == cu::kErrorUnknown) {
        EXPECT_THROW(static_cast<void>(pool.allocate(kMiB)), CudaError);
      } else {
        EXPECT_TRUE(pool.allocate(kMiB)) << "after others gave back what they could";
        EXPECT_EQ(asked, 1);
      }
      EXPECT_TRUE(pool.allocate(kMiB));
      EXPECT_EQ(machine.used(), 2 * kMiB);
      pool.check_invariants();
    }
}

// --- A limit on the device, whoever asks.

TEST(CudaLimit, HoldsForEverythingOnTheDevice) {
  const StandIn machine("devices=1");
  const auto backend = machine.backend();
  backend->set_limit(10 * kMiB);
  EXPECT_EQ(backend->memory().total_bytes, 10 * kMiB);
  const auto pages = backend->create_pages(6 * kMiB);
  const auto segment = backend->allocate_segment(4 * kMiB);
  ASSERT_TRUE(pages && segment);
  EXPECT_EQ(backend->memory().free_bytes, 0u);
  EXPECT_FALSE(backend->create_pages(2 * kMiB));
  EXPECT_FALSE(backend->allocate_segment(512));
  EXPECT_TRUE(backend->allocate_segment(kMiB, MemoryKind::kPinned)) << "the host's";
  backend->release_pages(*pages);
  backend->free_segment(*segment);
  EXPECT_EQ(backend->held_bytes(), 0u);
  EXPECT_EQ(backend->held_peak_bytes(), 10 * kMiB);
}

// --- Replays.

TEST(HardwareReplay, HoldsAndCallsWhatTheSimulationPredicts) {
  const StandIn machine(fmt::format("capacity={}", 64 * kGiB));
  const Workload workload(load_traces(TENON_SOURCE_DIR "/data/traces/gnn_sampled.csv.zst").at(0));
  SurveyOptions options;
  options.policies = {"null", "stitched", "expandable"};
  options.passes = 1;
  const auto results = survey_hardware(machine.driver(), 0, {&workload, 1}, options);
  ASSERT_EQ(results.size(), 2u) << "null needs no device";
  for (const HardwareResult& result : results) {
    EXPECT_EQ(result.error, "");
    EXPECT_EQ(result.hardware.reserved_peak_bytes, result.simulated.reserved_peak_bytes);
    EXPECT_EQ(result.hardware.ledger.memory_calls(), result.simulated.ledger.memory_calls());
  }
  EXPECT_THAT(report_hardware_table(results), ::testing::HasSubstr("stitched"));
}

TEST(HardwareReplay, ALimitThatIsTooSmallIsAResult) {
  const StandIn machine(fmt::format("capacity={}", 64 * kGiB));
  const Workload workload(load_traces(TENON_SOURCE_DIR "/data/traces/gnn_sampled.csv.zst").at(0));
  ReplaySetup setup;
  setup.policy = "stitched";
  setup.capacity_bytes = workload.live_peak_bytes() / 2;
  EXPECT_TRUE(replay_on_hardware(machine.driver(), 0, workload, setup, 1).out_of_memory);
}

}  // namespace
}  // namespace tenon
