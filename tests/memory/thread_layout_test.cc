// A thread's own blocks lie where they would if the thread were alone, whatever other threads do.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "memory/allocator_conformance.h"
#include "tenon/base/hash.h"
#include "tenon/base/random.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/policies.h"

namespace tenon {
namespace {

constexpr int kThreads = 3;
constexpr int kSteps = 2000;

// Allocates and frees on one stream; the layout hash of what it was given.
std::uint64_t work(DeviceAllocator& allocator, Stream stream, std::uint64_t seed,
                   std::uint64_t yields) {
  Random random(seed);
  Random pauses(yields);
  RunningHash hash;
  std::vector<DataPtr> blocks;
  for (int i = 0; i < kSteps; ++i) {
    if (blocks.empty() || (blocks.size() < 150 && random.chance(0.55))) {
      const std::uint64_t size = random.between(1, std::uint64_t{64} << random.below(19));
      blocks.push_back(allocator.allocate_on(size, stream));
      hash.add(static_cast<std::uint64_t>(i));
      hash.add(allocator.layout_offset(blocks.back()));
    } else {
      std::swap(blocks[random.below(blocks.size())], blocks.back());
      blocks.pop_back();
    }
    if (yields != 0 && pauses.chance(0.05)) std::this_thread::yield();
  }
  return hash.value();
}

// A device with streams 0 to kThreads - 1, without any limit that they would have to share.
struct Subject {
  explicit Subject(const std::string& policy) {
    streams.push_back({device.device(), 0});
    while (streams.size() < kThreads) streams.push_back(device.create_stream());
    PolicyOptions options;
    if (find_policy(policy).needs_plan) options.plan = &a_plan();
    allocator = make_policy(policy, device, options);
  }
  SimBackend device;
  std::vector<Stream> streams;
  std::unique_ptr<DeviceAllocator> allocator;
};

class ThreadLayout : public ::testing::TestWithParam<std::string> {};

TEST_P(ThreadLayout, DoesNotDependOnOtherThreads) {
  std::array<std::uint64_t, kThreads> alone;
  for (std::size_t t = 0; t < kThreads; ++t) {
    Subject subject(GetParam());
    alone[t] = work(*subject.allocator, subject.streams[t], t + 1, 0);
  }
  for (std::uint64_t round = 1; round <= 6; ++round) {
    Subject subject(GetParam());
    std::array<std::uint64_t, kThreads> together = {};
    std::atomic<int> ready{0};
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        ++ready;
        while (ready < kThreads) std::this_thread::yield();
        together[t] = work(*subject.allocator, subject.streams[t], t + 1, round * 100 + t);
      });
    for (std::thread& thread : threads) thread.join();
    for (std::size_t t = 0; t < kThreads; ++t)
      EXPECT_EQ(together[t], alone[t]) << "thread " << t << ", round " << round;
  }
}

// (plan serves what its plan does not foresee from caching; here that is nearly all.)
std::vector<std::string> policies_that_promise_it() {
  std::vector<std::string> names;
  for (const Policy& policy : policies())
    if (policy.name != "null") names.push_back(policy.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, ThreadLayout, ::testing::ValuesIn(policies_that_promise_it()),
                         [](const auto& policy) { return policy.param; });

}  // namespace
}  // namespace tenon
