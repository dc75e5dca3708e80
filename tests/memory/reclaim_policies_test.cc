// Policies over one device: what one caches idle is another's when the driver is short.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "tenon/base/byte_size.h"
#include "tenon/device/forwarding_backend.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/device/shortage.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/device/sleeping/sleeping_backend.h"
#include "tenon/heap/plan.h"
#include "tenon/memory/adaptors/statistics_adaptor.h"
#include "tenon/memory/gpu/caching_allocator.h"
#include "tenon/memory/gpu/pinned_allocator.h"
#include "tenon/memory/gpu/private_pool.h"
#include "tenon/memory/growable/page_pool.h"
#include "tenon/memory/placement/size_class_pool.h"
#include "tenon/memory/policies.h"
#include "tenon/memory/system/system_allocator.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint64_t kCapacity = 64 * kMiB;
constexpr std::uint64_t kMost = 40 * kMiB;  // two of them do not fit

using Made = std::unique_ptr<DeviceAllocator>;

Made make(const std::string& name, Backend& backend, std::uint64_t limit_bytes = 0) {
  static const Plan plan;
  if (name == "pinned") return std::make_unique<PinnedAllocator>(backend, limit_bytes);
  if (name == "private pool") {
    auto pool = std::make_unique<PrivatePool>(backend, std::function<void()>{},
                                              PrivatePool::Made::kOfPages, limit_bytes);
    pool->allow_release();
    return pool;
  }
  const Policy& policy = find_policy(name);
  return policy.make(backend,
                     options_for(policy, {.limit_bytes = limit_bytes, .plan = &plan}));
}

std::vector<std::string> names() {
  std::vector<std::string> all{"pinned", "private pool"};
  for (const Policy& policy : policies())
    if (policy.name != "null") all.push_back(policy.name);
  return all;
}

std::string failure_of(const std::function<void()>& request) {
  try {
    request();
  } catch (const OutOfMemory& error) {
    return error.what();
  }
  return "served";
}

class ReclaimOfPolicies : public ::testing::TestWithParam<std::string> {
 protected:
  SimBackend device_{{.capacity_bytes = kCapacity}};
};
INSTANTIATE_TEST_SUITE_P(All, ReclaimOfPolicies, ::testing::ValuesIn(names()),
                         [](const auto& which) {
                           return which.param == "private pool" ? "private_pool" : which.param;
                         });

TEST_P(ReclaimOfPolicies, WhatAPolicyCachesIsGivenBackForEveryOther) {
  for (const std::string& asking : names()) {
    SCOPED_TRACE(asking);
    const Made holder = make(GetParam(), device_);
    holder->allocate(kMost).clear();
    if (GetParam() != "system") {
      EXPECT_GT(holder->reserved_bytes(), 0u);
    }
    const Made asker = make(asking, device_);
    DataPtr block = asker->allocate(kMost);
    EXPECT_NE(block, nullptr);
    EXPECT_EQ(holder->stats().reserved_bytes[0].current, 0);
    EXPECT_LE(asker->stats().num_alloc_retries, 1) << "one request";
    EXPECT_EQ(asker->stats().num_ooms, 0);
    holder->check_invariants();
    asker->check_invariants();
    EXPECT_THROW(holder->allocate(kMost), OutOfMemory) << "what is in use stays";
    block.clear();
    EXPECT_NE(holder->allocate(kMost), nullptr) << "and back";
  }
  EXPECT_EQ(device_.used_bytes(), 0u);
}

TEST_P(ReclaimOfPolicies, APolicysOwnLimitEmptiesNoNeighbour) {
  CachingAllocator neighbour(device_);
  neighbour.allocate(20 * kMiB).clear();
  const Made limited = make(GetParam(), device_, 16 * kMiB);
  const std::string failure = failure_of([&] { limited->allocate(20 * kMiB); });
  EXPECT_THAT(failure, HasSubstr("requested 20 MiB"));
  EXPECT_THAT(failure, Not(HasSubstr("idle in caching"))) << "it would not help";
  EXPECT_EQ(neighbour.reserved_bytes(), 20 * kMiB);
}

TEST_P(ReclaimOfPolicies, WhatWasAllocatedFromAPolicyHelpsItsLimit) {
  const Made limited = make(GetParam(), device_, 32 * kMiB);
  StatisticsAdaptor counted(*limited);
  SizeClassPool pool(counted);
  SystemAllocator other(device_, 32 * kMiB);
  SizeClassPool elsewhere(other);
  pool.allocate(14 * kMiB).clear();
  elsewhere.allocate(14 * kMiB).clear();
  EXPECT_NE(limited->allocate(20 * kMiB), nullptr);
  EXPECT_EQ(pool.stats().free_bytes, 0u);
  EXPECT_GT(elsewhere.stats().free_bytes, 0u) << "does not count against that limit";
}

TEST_P(ReclaimOfPolicies, OneRequestIsOneRetry) {
  const Made asker = make(GetParam(), device_);
  SystemAllocator system(device_);
  SizeClassPool pool(system);
  pool.allocate(kMost).clear();
  EXPECT_THROW(asker->allocate(kCapacity + kMiB), OutOfMemory);
  EXPECT_EQ(pool.stats().free_bytes, 0u) << "asked, so the request was tried again";
  EXPECT_LE(asker->stats().num_alloc_retries, 1);
}

TEST_P(ReclaimOfPolicies, AThreadAllocatesWhileAnotherTakesWhatItCaches) {
  const Made holder = make(GetParam(), device_);
  std::atomic<bool> ends{false};
  std::thread busy([&] {
    for (int i = 0; !ends; ++i) {
      const DataPtr block = holder->allocate((i % 3 + 1) * kMiB);
      EXPECT_NE(block, nullptr);
    }
  });
  for (int i = 0; i < 50; ++i) {
    CachingAllocator asker(device_);
    EXPECT_THROW(asker.allocate(2 * kCapacity), OutOfMemory);
  }
  ends = true;
  busy.join();
  holder->check_invariants();
}

TEST_P(ReclaimOfPolicies, APolicyEndsWhileItIsAsked) {
  std::atomic<bool> ends{false};
  std::thread asking([&] {
    CachingAllocator asker(device_);
    while (!ends) EXPECT_THROW(asker.allocate(2 * kCapacity), OutOfMemory);
  });
  for (int i = 0; i < 50; ++i) {
    const Made holder = make(GetParam(), device_);
    holder->allocate(kMiB).clear();
  }
  ends = true;
  asking.join();
  EXPECT_EQ(device_.used_bytes(), 0u);
}

TEST_P(ReclaimOfPolicies, AWrapperOfTheDriverIsTheSameMemory) {
  if (GetParam() == "pinned") GTEST_SKIP() << "pinned memory cannot sleep";
  SleepingBackend weights(device_, "weights");
  SleepingBackend caches(weights, "caches");
  const Made holder = make(GetParam(), caches);
  holder->allocate(kMost).clear();
  CachingAllocator asker(device_);
  EXPECT_NE(asker.allocate(kMost), nullptr);
  asker.empty_cache();
  EXPECT_EQ(holder->reserved_bytes(), 0u);
}

TEST_P(ReclaimOfPolicies, WakingAsksForWhatIsInTheWay) {
  SleepingBackend weights(device_, "weights");
  CachingAllocator of_weights(weights);
  const DataPtr weight = of_weights.allocate(kMost);
  sleep("weights", SleepLevel::kDrop);
  const Made holder = make(GetParam(), device_);
  holder->allocate(kMost).clear();
  EXPECT_EQ(wake("weights"), kMost);
  EXPECT_EQ(weights.sleeping_bytes(), 0u);
  EXPECT_EQ(holder->reserved_bytes(), 0u);
}

TEST(ReclaimBetweenPolicies, WakingNamesWhatOthersHoldIdle) {
  SimBackend device({.capacity_bytes = kCapacity});
  SleepingBackend weights(device, "weights");
  CachingAllocator of_weights(weights), other(device);
  const DataPtr weight = of_weights.allocate(kMost);
  weights.sleep(SleepLevel::kDrop);
  const DataPtr in_use = other.allocate(kMost);
  DataPtr idle = other.allocate(12 * kMiB);
  const DataPtr half = other.allocate(kMiB / 2);
  idle.clear();
  const std::string failure = failure_of([&] { wake("weights"); });
  EXPECT_THAT(failure, HasSubstr("waking \"weights\""));
  EXPECT_THAT(failure, HasSubstr("1.50 MiB idle in caching")) << "the rest of a small segment";
  EXPECT_EQ(weights.sleeping_bytes(), kMost);
  EXPECT_EQ(other.reserved_bytes(), kMost + 2 * kMiB);
}

// The second backend of the tag ends while the first one wakes.
struct EndsABackend final : FreeMemoryCallback {
  bool execute() override {
    const bool any = *backend != nullptr;
    backend->reset();
    return any;
  }
  static inline std::unique_ptr<SleepingBackend>* backend = nullptr;
};

TEST(ReclaimBetweenPolicies, ABackendMayEndWhileAnotherOfItsTagWakes) {
  SimBackend device({.capacity_bytes = kCapacity});
  SleepingBackend first(device, "weights");
  auto second = std::make_unique<SleepingBackend>(device, "weights");
  const auto pages = first.create_pages(kMost);
  ASSERT_TRUE(pages && second->create_pages(8 * kMiB));
  sleep("weights", SleepLevel::kDrop);
  ASSERT_TRUE(second->create_pages(kMost));
  EndsABackend::backend = &second;
  add_free_memory_callback("ends a backend", std::make_unique<EndsABackend>());
  EXPECT_EQ(wake("weights"), kMost) << "of the first alone";
  remove_free_memory_callback("ends a backend");
  EXPECT_EQ(second, nullptr);
  EXPECT_EQ(device.used_bytes(), kMost);
}

TEST(ReclaimBetweenPolicies, WhatStandsOnAPolicyGivesBackBeforeIt) {
  SimBackend device({.capacity_bytes = kCapacity});
  CachingAllocator caching(device), asker(device);
  SizeClassPool pool(caching);
  SizeClassPool above(static_cast<Allocator&>(pool));
  above.allocate(kMost).clear();
  EXPECT_NE(asker.allocate(kMost), nullptr);
  EXPECT_EQ(caching.reserved_bytes(), 0u);
}

DataPtr* held_of_neighbour = nullptr;
struct FreesToANeighbour final : FreeMemoryCallback {
  bool execute() override {
    held_of_neighbour->clear();
    return true;
  }
};

TEST(ReclaimBetweenPolicies, WhatACallbackFreesToAnotherPolicyComesBackToo) {
  SimBackend device({.capacity_bytes = kCapacity});
  CachingAllocator neighbour(device), asker(device);
  DataPtr held = neighbour.allocate(kMost);
  held_of_neighbour = &held;
  add_free_memory_callback("to a neighbour", std::make_unique<FreesToANeighbour>());
  EXPECT_NE(asker.allocate(kMost), nullptr);
  remove_free_memory_callback("to a neighbour");
  EXPECT_EQ(neighbour.reserved_bytes(), 0u);
}

TEST(ReclaimBetweenPolicies, ThePolicyBehindAnotherOneIsItsAffair) {
  SimBackend device({.capacity_bytes = kCapacity});
  const Made plan = make("plan", device);  // a caching allocator serves what is not planned
  const DataPtr small = plan->allocate(kMiB / 2);
  const std::string failure = failure_of([&] { plan->allocate(2 * kCapacity); });
  EXPECT_THAT(failure, Not(HasSubstr("idle in"))) << "the rest of its own segment";
}

class Silent final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  BackendMemory memory() const override { throw DeviceError("memory: not now"); }
  std::uint64_t total_bytes() const override { return driver_.total_bytes(); }
};

TEST(ReclaimBetweenPolicies, OutOfMemoryDoesWithoutADriverThatDoesNotTell) {
  SimBackend device({.capacity_bytes = kCapacity});
  SystemAllocator others(device);
  const DataPtr held = others.allocate(30 * kMiB);
  Silent silent(device);
  CachingAllocator asker(silent);
  const std::string failure = failure_of([&] { asker.allocate(kMost); });
  EXPECT_THAT(failure, HasSubstr("out of memory"));
  EXPECT_THAT(failure, Not(HasSubstr("other allocators")));
}

TEST(ReclaimBetweenPolicies, PoliciesOfTheHostGiveBackToo) {
  HostBackend host;
  const Made holder = make("host", host), pool = make("pool", host);
  holder->allocate(kMost).clear();
  pool->allocate(kMost).clear();
  const auto limited = make("host", host, 16 * kMiB);
  EXPECT_THROW(limited->allocate(20 * kMiB), OutOfMemory);
  EXPECT_GT(pool->reserved_bytes(), 0u) << "a limit of its own";
  ShortageHandler* const above = shortage_handler();
  ASSERT_NE(above, nullptr);
  EXPECT_EQ(above->holders(host).size(), 2u);
  EXPECT_TRUE(above->relieve(host));
  EXPECT_TRUE(above->holders(host).empty());
  EXPECT_EQ(holder->reserved_bytes() + pool->reserved_bytes(), 0u);
  EXPECT_FALSE(above->relieve(host)) << "nothing is left";
}

// A pool of pages that asks for more does not give up its own idle ones for them.
TEST(ReclaimBetweenPolicies, APoolOfPagesKeepsItsOwnWhenItAsks) {
  SimBackend device({.capacity_bytes = kCapacity});
  CachingAllocator caching(device);
  caching.allocate(kMost).clear();
  const auto pool = PagePool::make(device, 2 * kMiB);
  pool->prepare(kCapacity / (2 * kMiB));
  EXPECT_EQ(caching.reserved_bytes(), 0u);
  EXPECT_THROW(pool->prepare(kCapacity / kMiB), OutOfMemory);
  EXPECT_EQ(pool->stats().pages_idle, kCapacity / (2 * kMiB));
  EXPECT_NE(caching.allocate(kMost), nullptr);
  EXPECT_EQ(pool->stats().pages_idle, 0u);
}

}  // namespace
}  // namespace tenon
