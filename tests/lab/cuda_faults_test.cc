// Every driver call fails once, through the whole stack: nobody crashes, nothing leaks, and what
// went wrong is said.
#include <gmock/gmock.h>

#include "support/cuda_stand_in.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/random.h"
#include "tenon/device/cuda/stamp_kernels.h"
#include "tenon/memory/gpu/pinned_allocator.h"
#include "tenon/memory/policies.h"
#include "tenon/memory/gpu/private_pool.h"

namespace tenon {
namespace {

using testing::StandIn;

// Requests of all sizes on two streams, some lent to the other, until memory is short.
void use_policy(CudaBackend& backend, DeviceAllocator& allocator) {
  const Stream streams[] = {{backend.device(), 0}, backend.create_stream()};
  Random random(7);
  std::vector<DataPtr> blocks;
  for (int i = 0; i < 60; ++i) {
    if (random.chance(0.6) || blocks.empty()) {
      blocks.push_back(allocator.allocate_on(random.between(1, 9 * kMiB), streams[i % 2]));
      backend.fill(blocks.back().get(), 1, 64, streams[i % 2]);
      if (i % 5 == 0) allocator.record_stream(blocks.back(), streams[(i + 1) % 2]);
    } else {
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(random.below(blocks.size())));
    }
    if (i == 40) allocator.empty_cache();
  }
}

void use_the_rest(CudaBackend& backend) {
  PinnedAllocator pinned(backend);
  DataPtr host = pinned.allocate(kMiB);
  PrivatePool pool(backend);
  const Stream stream = backend.create_stream();
  DataPtr block = pool.allocate_on(3 * kMiB, stream);
  backend.copy(block.get(), host.get(), kMiB, stream);
  pinned.record_stream(host, stream);
  StampKernels kernels(backend);
  kernels.stamp(stream, block.get(), 4096, 5);
  kernels.check(stream, block.get(), 4096, 5);
  EXPECT_EQ(kernels.wrong_words(), 0u);
  block.clear();
  host.clear();
  pool.allow_release();
  pinned.empty_cache();
  backend.wait(backend.record(stream));
  backend.destroy_stream(stream);
}

// Runs `use` with each call failing in turn, or with some of them where there are very many.
template <typename Use>
void fail_each_call(Use&& use) {
  const std::string setup = fmt::format("capacity={}", 160 * kMiB);
  std::uint64_t calls = 0;
  {
    const StandIn machine(setup);
    use(machine);
    calls = machine.all_calls();
  }
  ASSERT_GT(calls, 30u);
  const std::uint64_t step = calls / 250 + 1;
  for (const int error : {cu::kErrorOutOfMemory, cu::kErrorUnknown})
    for (std::uint64_t nth = 1; nth <= calls; nth += step) {
      SCOPED_TRACE(fmt::format("call {} of {} fails with {}", nth, calls, error));
      StandIn machine(setup);
      machine.fail_any(nth, error);
      try {
        use(machine);
      } catch (const OutOfMemory& lack) {
        EXPECT_THAT(lack.what(), ::testing::HasSubstr("cuda:0"));
      } catch (const DeviceError& refusal) {
        EXPECT_THAT(refusal.what(), ::testing::AnyOf(::testing::HasSubstr("cu"),
                                                     ::testing::HasSubstr("memory")));
      }
    }
}

class CudaFaults : public ::testing::TestWithParam<std::string> {};

TEST_P(CudaFaults, OfEveryCallLeaveThePolicyWhole) {
  fail_each_call([](const StandIn& machine) {
    const auto backend = machine.backend();
    const auto allocator = make_policy(GetParam(), *backend);
    struct Afterwards {  // also when something is thrown
      const StandIn& machine;
      DeviceAllocator& allocator;
      ~Afterwards() {
        const_cast<StandIn&>(machine).fail_any(0, cu::kSuccess);
        allocator.check_invariants();
        EXPECT_EQ(allocator.stats().allocated_bytes[0].current, 0);
        ignore_refusal([&] { allocator.empty_cache(); });
      }
    } const afterwards{machine, *allocator};
    use_policy(*backend, *allocator);
  });
}

INSTANTIATE_TEST_SUITE_P(StandIn, CudaFaults,
                         ::testing::Values("stitched", "caching", "expandable", "unified"),
                         [](const auto& which) { return which.param; });

TEST(CudaFaultsElsewhere, OfEveryCallLeakNothing) {
  fail_each_call([](const StandIn& machine) {
    const auto backend = machine.backend();
    struct Afterwards {
      const StandIn& machine;
      ~Afterwards() { const_cast<StandIn&>(machine).fail_any(0, cu::kSuccess); }
    } const afterwards{machine};
    use_the_rest(*backend);
  });
}

}  // namespace
}  // namespace tenon
