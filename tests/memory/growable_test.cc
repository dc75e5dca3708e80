// Buffers that grow in place, and memory that sleeps: over the host, a simulated device and the
// CUDA stand-in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include "support/cuda_stand_in.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/random.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/device/sleeping/sleeping_backend.h"
#include "tenon/memory/adaptors/limit_adaptor.h"
#include "tenon/memory/gpu/caching_allocator.h"
#include "tenon/memory/growable/growable_buffer.h"
#include "tenon/memory/policies.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;

class OnEachDevice : public ::testing::TestWithParam<std::string> {
 protected:
  OnEachDevice() {
    if (GetParam() == "host") {
      made_ = std::make_unique<HostBackend>();
    } else if (GetParam() == "sim") {
      SimOptions options;
      options.capacity_bytes = 256 << 20;
      options.real_memory = true;
      options.check_order = true;
      made_ = std::make_unique<SimBackend>(options);
    } else {
      made_ = machine_.emplace("lazy=1,seed=5").backend();
    }
    stream_ = Stream{backend().device(), 0};
    page_ = backend().limits().page_granularity;
  }

  Backend& backend() { return *made_; }
  void write(void* at, const std::string& bytes) {
    backend().copy(at, bytes.data(), bytes.size(), stream_);
    backend().synchronize(stream_);
  }
  std::string read(const void* at, std::size_t size_bytes) {
    std::string bytes(size_bytes, '?');
    backend().copy(bytes.data(), at, size_bytes, stream_);
    backend().synchronize(stream_);
    return bytes;
  }

  std::optional<testing::StandIn> machine_;
  std::unique_ptr<Backend> made_;
  Stream stream_;
  std::uint64_t page_ = 0;
};

// A driver without virtual memory.
class WithoutPages final : public ForwardingBackend {
 public:
  explicit WithoutPages(Backend& driver) : ForwardingBackend(driver), limits_(driver.limits()) {
    limits_.has_virtual_memory = false;
  }
  const BackendLimits& limits() const override { return limits_; }

 private:
  BackendLimits limits_;
};

using GrowableBuffers = OnEachDevice;
using SleepingMemory = OnEachDevice;
INSTANTIATE_TEST_SUITE_P(Over, GrowableBuffers, ::testing::Values("host", "sim", "cuda"),
                         [](const auto& which) { return which.param; });
INSTANTIATE_TEST_SUITE_P(Over, SleepingMemory, ::testing::Values("host", "sim", "cuda"),
                         [](const auto& which) { return which.param; });

TEST_P(GrowableBuffers, GrowWhereTheyAreAndKeepTheirBytes) {
  const auto pool = PagePool::make(backend());
  GrowableBuffer buffer(pool, 100 * page_);
  void* const address = buffer.data();
  EXPECT_EQ(pool->stats().pages_created, 0u) << "addresses alone";
  std::uint64_t expected = 0;
  for (int step = 0; step < 20; ++step) {
    const std::uint64_t end = buffer.size() + page_ / 2;
    buffer.resize(end);
    EXPECT_EQ(buffer.data(), address);
    write(static_cast<char*>(address) + expected, std::string(8, static_cast<char>('a' + step)));
    expected = end;
  }
  EXPECT_EQ(pool->stats().pages_in_use, 10u);
  for (int step = 0; step < 20; ++step)
    EXPECT_EQ(read(static_cast<char*>(address) + static_cast<std::uint64_t>(step) * (page_ / 2), 8),
              std::string(8, static_cast<char>('a' + step)));
}

TEST_P(GrowableBuffers, GiveTheirPagesToTheNextBufferOfThePool) {
  const auto pool = PagePool::make(backend());
  GrowableBuffer first(pool, 16 * page_), second(pool, 16 * page_);
  first.resize(8 * page_);
  first.resize(2 * page_);
  EXPECT_EQ(first.size(), 2 * page_);
  first.give_back(true);
  EXPECT_EQ(pool->stats().pages_idle, 6u);
  second.resize(6 * page_);
  EXPECT_EQ(pool->stats().pages_created, 8u) << "none new";
  EXPECT_EQ(pool->stats().pages_idle, 0u);
  // What shrinks and grows at once finds its pages still there.
  second.resize(page_);
  second.resize(6 * page_);
  EXPECT_EQ(pool->stats().pages_created, 8u);
}

TEST_P(GrowableBuffers, GrowAheadOfNeedOnAnotherThread) {
  const auto pool = PagePool::make(backend());
  GrowableBuffer buffer(pool, 64 * page_);
  std::thread ahead([&] { buffer.commit(32 * page_); });
  ahead.join();
  const DriverLedger before = backend().ledger();
  for (std::uint64_t size = page_; size <= 32 * page_; size += page_) buffer.resize(size);
  EXPECT_EQ(backend().ledger().calls, before.calls) << "no driver call";
  EXPECT_EQ(buffer.committed(), 32 * page_);
}

TEST_P(GrowableBuffers, RefuseWhatIsNotReserved) {
  const auto pool = PagePool::make(backend(), 0, 4 * page_);
  GrowableBuffer buffer(pool, 8 * page_);
  try {
    buffer.resize(8 * page_ + 1);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("reserve more when it is made"));
  }
  buffer.resize(3 * page_);
  EXPECT_THROW(buffer.resize(6 * page_), OutOfMemory) << "above the pool's limit";
  EXPECT_EQ(buffer.size(), 3 * page_);
  EXPECT_EQ(pool->stats().pages_in_use, 3u) << "as before";
  buffer.resize(4 * page_);
  EXPECT_THROW(PagePool::make(backend(), page_ + 1), InvalidArgument);
}

// A kernel that still reads what the buffer gave up must find it mapped: the order checker and the
// stand-in find an early unmapping.
TEST_P(GrowableBuffers, UnmapOnlyWhatNoQueuedWorkUses) {
  const auto pool = PagePool::make(backend());
  GrowableBuffer buffer(pool, 8 * page_);
  const Stream other = backend().limits().has_streams ? backend().create_stream() : stream_;
  buffer.resize(4 * page_);
  buffer.record_stream(other);
  backend().fill(static_cast<char*>(buffer.data()) + 3 * page_, 7, page_, other);
  buffer.resize(page_);
  buffer.give_back(false);
  buffer.give_back(true);
  EXPECT_EQ(pool->stats().pages_in_use, 1u);
  if (other != stream_) backend().destroy_stream(other);
}

TEST_P(SleepingMemory, ComesBackAtItsAddressesWithItsBytes) {
  SleepingBackend weights(backend(), "weights"), caches(backend(), "caches");
  CachingAllocator of_weights(weights), of_caches(caches);
  const DataPtr weight = of_weights.allocate(3 << 20), small = of_weights.allocate(1000);
  const DataPtr cache = of_caches.allocate(1 << 20);
  write(weight.get(), "the weights");
  write(small.get(), "a bias");
  const std::uint64_t held = weights.awake_bytes();

  EXPECT_EQ(sleep("weights", SleepLevel::kToHost), held);
  EXPECT_EQ(weights.awake_bytes(), 0u);
  EXPECT_EQ(weights.host_bytes(), held);
  write(cache.get(), "others work");
  EXPECT_EQ(read(cache.get(), 11), "others work");
  EXPECT_THROW(weights.fill(weight.get(), 0, 8, stream_), DeviceError);

  EXPECT_EQ(wake("weights"), held);
  EXPECT_EQ(read(weight.get(), 11), "the weights");
  EXPECT_EQ(read(small.get(), 6), "a bias");
  EXPECT_EQ(weights.host_bytes(), 0u);
  EXPECT_EQ(wake("weights"), 0u) << "awake already";
}

TEST_P(SleepingMemory, WorksThroughPoliciesAndAdaptorsAndFreesAsleep) {
  SleepingBackend caches(backend(), "caches");
  for (const char* name :
       {"system", "pool", "caching", "buddy", "arena", "expandable", "stitched"}) {
    SCOPED_TRACE(name);
    const auto policy = make_policy(name, caches);
    LimitAdaptor limited(*policy, 64 << 20);
    DataPtr block = limited.allocate(2 << 20);
    write(block.get(), "dropped");
    EXPECT_GT(caches.sleep(SleepLevel::kDrop), 0u);
    EXPECT_EQ(caches.host_bytes(), 0u);
    caches.wake();
    write(block.get(), "fresh");
    EXPECT_EQ(read(block.get(), 5), "fresh");
    caches.sleep(SleepLevel::kDrop);
    block.clear();
    policy->empty_cache();
  }
  EXPECT_EQ(caches.sleeping_bytes() + caches.awake_bytes(), 0u);
}

// Blocks come and go between sleeps, also while asleep: pages move, and each block that is live has
// its bytes whenever the memory is awake.
TEST_P(SleepingMemory, MovesWithThePagesOfEachPolicy) {
  for (const char* name : {"caching", "expandable", "stitched"}) {
    SCOPED_TRACE(name);
    SleepingBackend weights(backend(), "weights");
    const auto policy = make_policy(name, weights);
    Random random(7);
    std::vector<std::pair<DataPtr, std::string>> blocks;
    for (int round = 0; round < 8; ++round) {
      SCOPED_TRACE(round);
      for (int step = 0; step < 6; ++step) {
        if (!blocks.empty() && random.below(2) == 0) {
          std::swap(blocks[random.below(blocks.size())], blocks.back());
          blocks.pop_back();
        } else {
          blocks.emplace_back(policy->allocate((1 + random.below(20)) * (64 << 10)),
                              std::to_string(random.next()));
          write(blocks.back().first.get(), blocks.back().second);
        }
      }
      const std::uint64_t held = weights.awake_bytes();
      EXPECT_EQ(weights.sleep(SleepLevel::kToHost), held);
      EXPECT_EQ(weights.awake_bytes(), 0u);
      if (!blocks.empty()) blocks.pop_back();  // freed asleep
      if (round % 3 == 0) {
        const DataPtr awake = policy->allocate(round % 2 == 0 ? 6 << 20 : 12 << 20);
        if (round % 2 == 0) policy->empty_cache();
      }
      weights.wake();
      EXPECT_EQ(weights.host_bytes() + weights.sleeping_bytes(), 0u);
      for (const auto& [block, bytes] : blocks)
        EXPECT_EQ(read(block.get(), bytes.size()), bytes);
      policy->check_invariants();
    }
  }
}

TEST_P(SleepingMemory, PartsMaySleep) {
  SleepingBackend weights(backend(), "weights");
  const auto system = make_policy("system", weights);
  const DataPtr first = system->allocate(page_), second = system->allocate(page_);
  write(first.get(), "first");
  EXPECT_EQ(weights.sleep_segment(first.get(), SleepLevel::kToHost), page_);
  write(second.get(), "second");
  EXPECT_EQ(weights.wake(), page_);
  EXPECT_EQ(read(first.get(), 5), "first");
  EXPECT_EQ(read(second.get(), 6), "second");
  int foreign = 0;
  EXPECT_THROW(weights.sleep_segment(&foreign, SleepLevel::kDrop), InvalidArgument);
}

TEST_P(SleepingMemory, IsRefusedWithTheReasonWhereMemoryCannotMove) {
  EXPECT_THROW(SleepingBackend(backend(), ""), InvalidArgument);
  SleepingBackend weights(backend(), "weights");
  const SleepingBackend cache(backend(), "cache"), more(backend(), "cache");
  try {
    sleep("gradients", SleepLevel::kDrop);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("no memory has this tag; the tags are: cache, weights"));
  }
  EXPECT_THROW(static_cast<void>(weights.allocate_segment(1, MemoryKind::kPinned)), DeviceError);
  const auto pages = weights.create_pages(page_);
  try {
    weights.export_pages(*pages);
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("another process would keep its pages"));
  }
  weights.release_pages(*pages);
  WithoutPages without_pages(backend());
  try {
    SleepingBackend(without_pages, "weights");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot leave its addresses"));
  }
}

// The physical memory is the driver's again: what did not fit before fits meanwhile.
SimOptions small_device() {
  SimOptions options;
  options.capacity_bytes = 16 << 20;  // eight pages
  options.lag_ns = 1000;
  options.check_order = true;
  return options;
}

TEST(GrowableBufferTest, StaysAsItWasWhereNoEventCanBeRecorded) {
  for (std::uint64_t nth = 1; nth <= 2; ++nth) {  // the buffer's stream, and the second user
    SimBackend device(small_device());
    const std::uint64_t page = device.limits().page_granularity;
    const Stream other = device.create_stream();
    const auto pool = PagePool::make(device);
    GrowableBuffer buffer(pool, 8 * page);
    buffer.resize(4 * page);
    buffer.record_stream(other);
    device.queue_work(other);
    device.fail_call(DriverCall::kEventRecord, nth);
    EXPECT_THROW(buffer.resize(page), DeviceError);
    EXPECT_EQ(buffer.size(), 4 * page);
    EXPECT_EQ(buffer.committed(), 4 * page);
    EXPECT_EQ(buffer.give_back(true), 0u);
    buffer.resize(page);
    buffer.give_back(true);
    EXPECT_EQ(pool->stats().pages_in_use, 1u);
    EXPECT_TRUE(device.order_violations().empty());
  }
}

TEST(GrowableBufferTest, IsWholeWhereTheDriverUnmapsNothing) {
  SimBackend device(small_device());
  const std::uint64_t page = device.limits().page_granularity;
  const auto pool = PagePool::make(device);
  {
    GrowableBuffer buffer(pool, 8 * page);
    buffer.resize(4 * page);
    device.fail_call(DriverCall::kUnmap, 2);
    EXPECT_THROW(buffer.resize(0), DeviceError);
    EXPECT_EQ(buffer.size(), 0u);
    buffer.resize(4 * page);
    EXPECT_EQ(buffer.give_back(true), 0u) << "all in use again";
    device.fail_call(DriverCall::kUnmap, 2);
  }
  EXPECT_EQ(pool->stats().pages_idle, 3u) << "the others come back at the end";
}

TEST(GrowableBufferTest, LeftPagesServeOthersWhenMemoryIsShort) {
  SimBackend device(small_device());
  const std::uint64_t page = device.limits().page_granularity;
  const auto pool = PagePool::make(device);
  GrowableBuffer buffer(pool, 8 * page), second(pool, 8 * page);
  buffer.resize(7 * page);
  device.queue_work({device.device(), 0});
  buffer.resize(page);
  EXPECT_EQ(pool->stats().pages_idle, 0u);
  device.advance_to(device.now_ns() + 1'000'000);
  second.resize(3 * page);  // of the same pool
  second.resize(0);
  device.advance_to(device.now_ns() + 1'000'000);
  const auto policy = make_policy("caching", device);
  EXPECT_NO_THROW(policy->allocate(5 * page)) << "and of another allocator";
}

TEST(SleepingMemoryTest, WaitsForQueuedWorkBeforeItUnmaps) {
  for (const bool frees : {false, true}) {
    SimBackend device(small_device());
    SleepingBackend weights(device, "weights");
    const auto segment = weights.allocate_segment(2 << 20, MemoryKind::kDevice);
    ASSERT_TRUE(segment);
    const Stream stream = weights.create_stream();
    device.queue_work(stream);
    device.access(stream, segment->base, 2 << 20, 1);
    if (frees)
      weights.free_segment(*segment);
    else
      weights.sleep(SleepLevel::kDrop);
    EXPECT_TRUE(device.order_violations().empty());
  }
}

TEST(SleepingMemoryTest, GivesItsMemoryToOthersMeanwhile) {
  SimBackend device({.capacity_bytes = 64 << 20, .real_memory = true});
  SleepingBackend weights(device, "weights");
  const auto system = make_policy("system", weights);
  const DataPtr weight = system->allocate(40 << 20);
  EXPECT_FALSE(device.allocate_segment(40 << 20));
  weights.sleep(SleepLevel::kToHost);
  const auto other = device.allocate_segment(40 << 20);
  ASSERT_TRUE(other);
  EXPECT_THROW(weights.wake(), OutOfMemory);
  device.free_segment(*other);
  EXPECT_EQ(weights.wake(), 40u << 20);
}

// Each driver call fails once: what it was for stays awake or asleep, with its bytes, and the next
// try goes through.
TEST(SleepingMemoryTest, StaysWholeWhereTheDriverFails) {
  for (std::size_t kind = 0; kind < kDriverCalls; ++kind)
    for (std::uint64_t nth = 1; nth <= 3; ++nth) {
      SCOPED_TRACE(::testing::Message() << "call " << kind << ", " << nth);
      SimBackend device({.capacity_bytes = 64 << 20, .real_memory = true});
      SleepingBackend weights(device, "weights");
      const std::uint64_t page = device.limits().page_granularity;
      const auto range = weights.reserve_address(2 * page);
      const auto twice = weights.create_pages(page);  // mapped at two addresses
      auto* const there = reinterpret_cast<char*>(range->base);
      ASSERT_TRUE(weights.map(range->base, *twice) && weights.map(range->base + page, *twice) &&
                  weights.set_access(range->base, 2 * page));
      std::memcpy(there, "twice", 5);
      const auto policy = make_policy("stitched", weights);
      const DataPtr first = policy->allocate(3 << 20), second = policy->allocate(5 << 20);
      std::memcpy(first.get(), "first", 5);
      std::memcpy(second.get(), "second", 6);
      const std::uint64_t held = device.used_bytes();
      device.fail_call(static_cast<DriverCall>(kind), nth);
      std::uint64_t moved = 0;
      const auto retry = [&](auto&& call) {
        for (int tries = 0; tries < 2; ++tries) {
          try {
            moved += call();
            return;
          } catch (const DeviceError&) {
          } catch (const OutOfMemory&) {
          }
          EXPECT_EQ(weights.awake_bytes() + weights.sleeping_bytes(), held);
        }
        FAIL() << "twice";
      };
      retry([&] { return weights.sleep(SleepLevel::kToHost); });
      EXPECT_EQ(weights.awake_bytes(), 0u);
      retry([&] { return weights.wake(); });
      EXPECT_EQ(weights.sleeping_bytes() + weights.host_bytes(), 0u);
      EXPECT_LE(moved, 2 * held);
      EXPECT_EQ(std::memcmp(first.get(), "first", 5), 0);
      EXPECT_EQ(std::memcmp(second.get(), "second", 6), 0);
      EXPECT_EQ(std::memcmp(there + page, "twice", 5), 0);
      EXPECT_GE(device.used_bytes(), held) << "more where the driver took pages back in vain";
    }
}

}  // namespace
}  // namespace tenon
