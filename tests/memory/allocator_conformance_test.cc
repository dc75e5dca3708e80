#include "memory/allocator_conformance.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <map>

#include "tenon/base/align.h"
#include "tenon/heap/plan.h"
#include "tenon/memory/policies.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;

// Policies that are no allocators in this sense, and why.
const std::map<std::string, std::string>& excluded_policies() {
  static const std::map<std::string, std::string> kExcluded = {
      {"null", "its blocks have no memory"},
  };
  return kExcluded;
}

}  // namespace

// Some plan: what the tests do agrees with it now and then.
const Plan& a_plan() {
  static const Plan plan = [] {
    Random random(5);
    std::vector<PlanSlot> slots;
    for (int i = 0; i < 2000; ++i)
      slots.push_back({512 * random.below(20000), 512 * (1 + random.below(1 << random.below(8)))});
    Plan made;
    made.set_stream(0, slots);
    made.set_stream(1, slots);
    return made;
  }();
  return plan;
}

std::vector<ConformanceCase> conformance_cases() {
  std::vector<ConformanceCase> cases;
  for (const Policy& policy : policies()) {
    if (excluded_policies().contains(policy.name)) continue;
    ConformanceCase one{policy.name, [make = policy.make](Backend& b) {
                          return make(b, {.conf = {}, .plan = &a_plan()});
                        }};
    if (policy.name == "host") one.alignment = 64;
    if (policy.name == "unified") one.alignment = 16;
    cases.push_back(std::move(one));
  }
  for (ConformanceCase& one : adaptor_cases()) cases.push_back(std::move(one));
  return cases;
}

namespace {

constexpr std::size_t kSizes[] = {1,       2,       7,        63,       64,        65,
                                  255,     256,     257,      511,      512,       513,
                                  1000,    4095,    4096,     4097,     65535,     65536,
                                  262144,  262145,  1048575,  1048576,  1048577,   2097152,
                                  2097153, 9999999, 10485760, 20971520, 33554433};

TEST_P(AllocatorConformance, ZeroBytesIsANullPointerOnItsDeviceAndChangesNothing) {
  const auto before = allocator_->stats().named();
  const DataPtr block = allocator_->allocate(0);
  EXPECT_FALSE(block);
  EXPECT_EQ(block.device(), allocator_->device());
  EXPECT_EQ(allocator_->stats().named(), before);
}

TEST_P(AllocatorConformance, RefusesSizesThatNoDeviceHasAndForeignStreams) {
  const std::size_t max = std::numeric_limits<std::size_t>::max();
  for (std::size_t size : {max, max - 511, max / 2 + 1, std::size_t{kMaxRequestBytes} + 1})
    EXPECT_THROW(allocator_->allocate(size), InvalidArgument) << size;
  EXPECT_THROW(allocator_->allocate_on(64, Stream{{DeviceType::kCuda, 3}, 0}), InvalidArgument);
  EXPECT_EQ(allocator_->stats().allocation[0].current, 0);
}

TEST_P(AllocatorConformance, EverySizeIsAlignedAndOverlapsNoOther) {
  std::map<std::uintptr_t, std::size_t> ranges;
  std::vector<DataPtr> blocks;
  for (std::size_t size : kSizes) {
    blocks.push_back(allocator_->allocate(size));
    const auto address = reinterpret_cast<std::uintptr_t>(blocks.back().get());
    EXPECT_TRUE(is_aligned(address, GetParam().alignment)) << size << " at " << address;
    EXPECT_EQ(blocks.back().device(), allocator_->device());
    ranges[address] = size;
    std::memset(blocks.back().get(), 1, size);
  }
  ASSERT_EQ(ranges.size(), std::size(kSizes));
  for (auto it = ranges.begin(); std::next(it) != ranges.end(); ++it)
    EXPECT_LE(it->first + it->second, std::next(it)->first);
}

TEST_P(AllocatorConformance, ContentsSurviveThousandsOfRandomSteps) {
  for (std::uint64_t seed : {1, 2, 3}) {
    Churn churn(*allocator_, {.seed = seed, .steps = 3000, .empty_cache_chance = 0.01});
    for (int i = 0; i < 30; ++i) {
      for (int j = 0; j < 100; ++j) churn.step();
      allocator_->check_invariants();
    }
    EXPECT_EQ(churn.out_of_memory() + churn.device_errors(), 0);
  }
}

TEST_P(AllocatorConformance, ContentsSurviveOnSeveralStreams) {
  ChurnOptions options{.seed = 4, .steps = 3000, .empty_cache_chance = 0.005};
  options.streams = {Stream{allocator_->device(), 0}, backend_->create_stream(),
                     backend_->create_stream()};
  {
    Churn churn(*allocator_, options);
    churn.run();
    allocator_->check_invariants();
  }
  allocator_->empty_cache();
}

TEST_P(AllocatorConformance, CloneCopiesThroughTheDevice) {
  const DataPtr original = allocator_->allocate(3000);
  fill_block(original.get(), 3000, 77);
  const DataPtr copy = allocator_->clone(original.get(), 3000);
  EXPECT_NE(copy.get(), original.get());
  EXPECT_TRUE(block_is_intact(copy.get(), 3000, 77));
  char host[2] = {};  // the device copies nothing between addresses of others; the host would
  EXPECT_THROW(allocator_->copy_data(host, host + 1, 1), DeviceError);
}

TEST_P(AllocatorConformance, StatisticsFollowTheBlocks) {
  Churn churn(*allocator_, {.seed = 5, .touch = false});
  for (int i = 0; i < 1000; ++i) {
    churn.step();
    const AllocatorStats stats = allocator_->stats();
    ASSERT_EQ(stats.allocation[0].current, static_cast<std::int64_t>(churn.live()));
    const auto requested = static_cast<std::int64_t>(churn.requested_bytes());
    ASSERT_GE(stats.requested_bytes[0].current, requested);
    if (GetParam().exact) {
      ASSERT_EQ(stats.requested_bytes[0].current, requested);
    }
    ASSERT_GE(stats.allocated_bytes[0].current, stats.requested_bytes[0].current);
    ASSERT_GE(stats.reserved_bytes[0].current, stats.allocated_bytes[0].current);
    for (const PoolStats* pools : {&stats.allocation, &stats.allocated_bytes,
                                   &stats.reserved_bytes, &stats.requested_bytes})
      ASSERT_GE((*pools)[0].peak, (*pools)[0].current);
  }
  churn.free_all();
  const AllocatorStats stats = allocator_->stats();
  EXPECT_EQ(stats.allocation[0].current, 0);
  EXPECT_EQ(stats.allocated_bytes[0].current, 0);
  EXPECT_EQ(stats.requested_bytes[0].current, 0);
  EXPECT_EQ(stats.allocation[0].freed(), stats.allocation[0].allocated);
  allocator_->reset_peak_stats();
  EXPECT_EQ(allocator_->stats().allocation[0].peak, 0);
  EXPECT_EQ(allocator_->stats().reserved_bytes[0].peak,
            allocator_->stats().reserved_bytes[0].current);
}

TEST_P(AllocatorConformance, ReservedBytesAreWhatTheDeviceHandedOut) {
  Churn churn(*allocator_, {.seed = 6, .empty_cache_chance = 0.01, .touch = false});
  for (int i = 0; i < 1000; ++i) {
    churn.step();
    ASSERT_EQ(allocator_->reserved_bytes(), backend_->used_bytes()) << "step " << i;
  }
}

TEST_P(AllocatorConformance, EmptyCacheNeverRaisesReservedAndKeepsWhatIsInUse) {
  Churn churn(*allocator_, {.seed = 7});
  for (int i = 0; i < 20; ++i) {
    for (int j = 0; j < 50; ++j) churn.step();
    const std::uint64_t before = allocator_->reserved_bytes();
    allocator_->empty_cache();
    EXPECT_LE(allocator_->reserved_bytes(), before);
    EXPECT_GE(allocator_->reserved_bytes(), churn.requested_bytes());
    allocator_->check_invariants();
  }
}

TEST_P(AllocatorConformance, OutOfMemoryHasTheNumbersAndIsRecoverable) {
  const std::uint64_t capacity = 600 << 20;
  start(device(capacity));
  const std::size_t size = 30 << 20;
  std::vector<DataPtr> blocks;
  bool thrown = false;
  while (!thrown && blocks.size() < 100) {
    try {
      blocks.push_back(allocator_->allocate(size));
    } catch (const OutOfMemory& error) {
      thrown = true;
      EXPECT_EQ(error.details().requested_bytes, size);
      EXPECT_LE(error.details().reserved_bytes, capacity);
      EXPECT_GE(error.details().allocated_bytes, blocks.size() * size);
      EXPECT_THAT(error.what(), HasSubstr("requested 30 MiB"));
      EXPECT_THAT(error.what(), HasSubstr(to_string(allocator_->device())));
    }
  }
  EXPECT_TRUE(thrown);
  EXPECT_GT(blocks.size(), 0u);
  EXPECT_EQ(allocator_->stats().num_ooms, 1);
  allocator_->check_invariants();
  const std::size_t fitted = blocks.size();
  blocks.clear();
  for (std::size_t i = 0; i < fitted; ++i) blocks.push_back(allocator_->allocate(size));
  // What is idle serves a request that no block of it could hold.
  blocks.clear();
  const std::size_t large = capacity / 2;
  fill_block(allocator_->allocate(large).get(), large, 1);
}

TEST_P(AllocatorConformance, LayoutIsTheSameInEveryRunAtAnyAddress) {
  if (GetParam().writes_memory) GTEST_SKIP() << "fake addresses cannot be written";
  const auto run = [this](std::uint64_t gap_bytes) {
    // Fake addresses: where the system puts real memory differs from run to run, and ties among
    // equal blocks are decided by address.
    SimOptions fake = device();
    fake.real_memory = false;
    start(fake);
    // Other addresses than in the other run.
    const auto gap = backend_->allocate_segment(gap_bytes);
    std::uint64_t hash = 0;
    {
      ChurnOptions options{.seed = 8, .steps = 2000, .empty_cache_chance = 0.002, .touch = false};
      options.streams = {Stream{allocator_->device(), 0}, backend_->create_stream()};
      Churn churn(*allocator_, options);
      churn.run();
      hash = churn.layout_hash();
    }
    allocator_->empty_cache();
    backend_->free_segment(*gap);
    return hash;
  };
  const std::uint64_t first = run(512);
  EXPECT_EQ(first, run(512));
  EXPECT_EQ(first, run(3 << 20));
  EXPECT_EQ(first, run((1 << 30) + 512));
}

TEST_P(AllocatorConformance, SnapshotAddsUp) {
  Churn churn(*allocator_, {.seed = 9, .steps = 500, .touch = false});
  churn.run();
  const std::vector<SegmentInfo> segments = allocator_->snapshot();
  if (segments.empty()) GTEST_SKIP() << "this allocator offers no snapshot";
  std::uint64_t reserved = 0;
  std::uint64_t requested = 0;
  std::size_t active = 0;
  for (const SegmentInfo& segment : segments) {
    if (!segment.expandable) reserved += segment.size_bytes;
    std::uintptr_t at = segment.address;
    for (const BlockInfo& block : segment.blocks) {
      EXPECT_GE(block.address, at) << "blocks overlap or are out of order";
      at = block.address + block.size_bytes;
      EXPECT_LE(at, segment.address + segment.size_bytes);
      if (block.state != BlockInfo::State::kActive) continue;
      ++active;
      requested += block.requested_bytes;
    }
  }
  EXPECT_EQ(active, churn.live());
  EXPECT_EQ(requested, churn.requested_bytes());
  EXPECT_LE(reserved, allocator_->reserved_bytes());
}

// --- Observers.

// Keeps account of blocks from events alone.
class Bookkeeper : public Observer {
 public:
  void on_memory_event(const MemoryEventInfo& info) override {
    ++counts[info.event];
    if (info.event == MemoryEvent::kAllocated || info.event == MemoryEvent::kRecycled) {
      EXPECT_TRUE(live.emplace(info.data, info.size_bytes).second) << "allocated twice";
    } else if (info.event == MemoryEvent::kFreed) {
      const auto it = live.find(info.data);
      ASSERT_NE(it, live.end()) << "freed but never allocated";
      EXPECT_EQ(it->second, info.size_bytes);
      live.erase(it);
    }
  }
  std::map<MemoryEvent, int> counts;
  std::map<void*, std::uint64_t> live;
};

TEST_P(AllocatorConformance, ObserversSeeEveryBlockComeAndGo) {
  Bookkeeper bookkeeper;
  const ObserverGuard guard(allocator_->observers(), bookkeeper);
  {
    Churn churn(*allocator_, {.seed = 10, .empty_cache_chance = 0.01, .touch = false});
    for (int i = 0; i < 1000; ++i) {
      churn.step();
      ASSERT_EQ(bookkeeper.live.size(), churn.live());
    }
  }
  EXPECT_TRUE(bookkeeper.live.empty());
  EXPECT_GT(bookkeeper.counts[MemoryEvent::kFreed], 0);
  EXPECT_EQ(bookkeeper.counts[MemoryEvent::kAllocated] +
                bookkeeper.counts[MemoryEvent::kRecycled],
            bookkeeper.counts[MemoryEvent::kFreed]);
}

TEST_P(AllocatorConformance, ObserversSeeFailedRequests) {
  start(device(512 << 20));
  Bookkeeper bookkeeper;
  const ObserverGuard guard(allocator_->observers(), bookkeeper);
  EXPECT_THROW(allocator_->allocate(513 << 20), OutOfMemory);
  EXPECT_GE(bookkeeper.counts[MemoryEvent::kAllocationFailed], 1);
  if (GetParam().exact) {
    EXPECT_EQ(bookkeeper.counts[MemoryEvent::kAllocationFailed], 1);
  }
}

class ThrowingObserver : public Observer {
 public:
  void on_memory_event(const MemoryEventInfo&) override { throw 42; }
};

TEST_P(AllocatorConformance, ExceptionsOfObserversStayThere) {
  ThrowingObserver observer;
  const ObserverGuard guard(allocator_->observers(), observer);
  DataPtr block = allocator_->allocate(100);
  EXPECT_TRUE(block);
  block.clear();
  EXPECT_GE(allocator_->observers().errors(), 2u);
  EXPECT_EQ(allocator_->stats().allocation[0].current, 0);
}

// An observer that uses the very allocator that it observes.
class AllocatingObserver : public Observer {
 public:
  explicit AllocatingObserver(DeviceAllocator& allocator) : allocator_(allocator) {}
  void on_memory_event(const MemoryEventInfo&) override {
    if (busy_) return;
    busy_ = true;
    allocator_.allocate(5000).clear();
    busy_ = false;
    ++allocated;
  }
  int allocated = 0;

 private:
  DeviceAllocator& allocator_;
  bool busy_ = false;
};

TEST_P(AllocatorConformance, ObserversMayAllocate) {
  AllocatingObserver observer(*allocator_);
  const ObserverGuard guard(allocator_->observers(), observer);
  Churn churn(*allocator_, {.seed = 11, .steps = 300, .empty_cache_chance = 0.02});
  churn.run();
  EXPECT_GT(observer.allocated, 100);
  EXPECT_EQ(allocator_->observers().errors(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, AllocatorConformance, ::testing::ValuesIn(conformance_cases()),
                         conformance_case_name);

}  // namespace
}  // namespace tenon
