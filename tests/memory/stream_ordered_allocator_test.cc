// caching, expandable and stitched: what PyTorch's own tests hold of its allocator, and what is
// particular to each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/base/random.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/gpu/caching_allocator.h"
#include "tenon/memory/policies.h"
#include "tenon/memory/gpu/stitched_allocator.h"

namespace tenon {
namespace {

std::map<std::string, std::int64_t> named(const DeviceAllocator& allocator) {
  std::map<std::string, std::int64_t> out;
  for (const auto& [name, value] : allocator.stats().named()) out[name] = value;
  return out;
}

class StreamOrdered : public ::testing::TestWithParam<std::string> {
 protected:
  void start(SimOptions options = {}, PolicyOptions policy_options = {}) {
    allocator_.reset();
    backend_ = std::make_unique<SimBackend>(options);
    allocator_ = make_policy(GetParam(), *backend_, policy_options);
    side_ = backend_->create_stream();
  }
  void SetUp() override { start(); }
  void TearDown() override {
    if (allocator_ != nullptr) allocator_->check_invariants();
    allocator_.reset();
    EXPECT_EQ(backend_->used_bytes(), 0u);
  }

  std::unique_ptr<SimBackend> backend_;
  std::unique_ptr<DeviceAllocator> allocator_;
  Stream side_;
};

// Every .current figure that a snapshot shows can be counted from it.
TEST_P(StreamOrdered, CurrentStatisticsCanBeRecountedFromTheSnapshot) {
  Random random(7);
  std::vector<DataPtr> live;
  std::map<std::string, std::int64_t> before = named(*allocator_);
  for (int step = 0; step < 600; ++step) {
    if (random.chance(0.55) || live.empty()) {
      const std::uint64_t most = std::uint64_t{1} << random.between(9, 26);
      live.push_back(allocator_->allocate(random.between(1, most)));
    } else {
      std::swap(live[random.below(live.size())], live.back());
      live.pop_back();
    }
    if (step % 97 == 96) allocator_->empty_cache();

    std::int64_t active = 0, active_bytes = 0, requested = 0, reserved = 0;
    for (const SegmentInfo& segment : allocator_->snapshot()) {
      reserved += static_cast<std::int64_t>(segment.size_bytes);
      std::uintptr_t end = segment.address;
      for (const BlockInfo& block : segment.blocks) {
        ASSERT_EQ(block.address, end);
        end += block.size_bytes;
        if (block.state != BlockInfo::State::kActive) continue;
        ++active;
        active_bytes += static_cast<std::int64_t>(block.size_bytes);
        requested += static_cast<std::int64_t>(block.requested_bytes);
      }
      ASSERT_EQ(end, segment.address + segment.size_bytes);
    }
    const auto now = named(*allocator_);
    ASSERT_EQ(now.at("active.all.current"), active);
    ASSERT_EQ(now.at("allocation.all.current"), active);
    ASSERT_EQ(now.at("active_bytes.all.current"), active_bytes);
    ASSERT_EQ(now.at("allocated_bytes.all.current"), active_bytes);
    ASSERT_EQ(now.at("requested_bytes.all.current"), requested);
    // Stitched may hold pages that are mapped nowhere in use; the others map all they hold.
    if (GetParam() != "stitched") {
      ASSERT_EQ(now.at("reserved_bytes.all.current"), reserved);
    }
    ASSERT_EQ(now.at("reserved_bytes.all.current"),
              static_cast<std::int64_t>(backend_->used_bytes()));
    for (const auto& [name, value] : now) {
      if (name.ends_with(".peak")) {
        ASSERT_GE(value, before.at(name)) << name;
      }
      if (name.ends_with(".all.current")) {
        const std::string family = name.substr(0, name.find('.'));
        ASSERT_EQ(value, now.at(family + ".small_pool.current") +
                             now.at(family + ".large_pool.current"))
            << name;
      }
    }
    before = now;
  }
}

// An observer makes every call take the slow path.
TEST_P(StreamOrdered, TheFastAndTheSlowPathGiveTheSame) {
  class Watcher final : public Observer {
    void on_memory_event(const MemoryEventInfo&) override {}
  } watcher;
  const auto other_device = std::make_unique<SimBackend>(SimOptions{});
  const auto watched = make_policy(GetParam(), *other_device);
  const ObserverGuard watching(watched->observers(), watcher);
  Random random(11);
  std::vector<std::pair<DataPtr, DataPtr>> live;
  std::size_t size = 1;
  for (int step = 0; step < 4000; ++step) {
    if (random.chance(0.3)) size = random.between(1, std::uint64_t{1} << random.between(9, 25));
    if (random.chance(0.55) || live.empty()) {
      live.emplace_back(allocator_->allocate(size), watched->allocate(size));
      EXPECT_EQ(allocator_->layout_offset(live.back().first),
                watched->layout_offset(live.back().second));
    } else {
      if (random.chance(0.2)) std::swap(live[random.below(live.size())], live.back());
      live.pop_back();
    }
    watched->check_invariants();
  }
  EXPECT_EQ(named(*allocator_), named(*watched));
  live.clear();
  EXPECT_EQ(named(*allocator_), named(*watched));
}

TEST_P(StreamOrdered, ZeroBytesChangeNothing) {
  const DataPtr block = allocator_->allocate(3000);
  const auto before = named(*allocator_);
  const DataPtr nothing = allocator_->allocate(0);
  EXPECT_EQ(nothing.get(), nullptr);
  EXPECT_EQ(nothing.device(), backend_->device());
  EXPECT_EQ(named(*allocator_), before);
}

TEST_P(StreamOrdered, AHundredRecordedBlocksDoNotRunOutOfMemory) {
  start({.capacity_bytes = 1 * kGiB, .lag_ns = 1'000'000});
  std::uint64_t time_ns = 0;
  for (int i = 0; i < 100; ++i) {
    backend_->advance_to(time_ns += 100'000);
    DataPtr block = allocator_->allocate(160 * kMiB);
    backend_->queue_work(side_);
    allocator_->record_stream(block, side_);
  }
  SUCCEED();
}

TEST_P(StreamOrdered, ARecordedBlockWaitsForTheOtherStream) {
  start({.lag_ns = 1'000'000});
  DataPtr block = allocator_->allocate(5 * kMiB);
  void* const address = block.get();
  allocator_->record_stream(block, side_);
  backend_->queue_work(side_);
  block.clear();
  EXPECT_EQ(named(*allocator_)["active.all.current"], 1);
  EXPECT_EQ(named(*allocator_)["allocation.all.current"], 0);
  DataPtr meanwhile = allocator_->allocate(5 * kMiB);
  EXPECT_NE(meanwhile.get(), address);
  backend_->advance_to(10'000'000);
  meanwhile.clear();
  DataPtr first = allocator_->allocate(5 * kMiB);
  EXPECT_EQ(named(*allocator_)["active.all.current"], 1);
}

TEST_P(StreamOrdered, RecordingItsOwnStreamChangesNothing) {
  DataPtr block = allocator_->allocate(5 * kMiB);
  void* const address = block.get();
  allocator_->record_stream(block, Stream{backend_->device(), 0});
  block.clear();
  EXPECT_EQ(allocator_->allocate(5 * kMiB).get(), address);
}

TEST_P(StreamOrdered, RefusesBlocksAndStreamsOfOthers) {
  DataPtr foreign(this, backend_->device());
  EXPECT_THROW(allocator_->record_stream(foreign, side_), InvalidPointer);
  EXPECT_THROW(allocator_->allocate_on(512, Stream{{DeviceType::kCuda, 3}, 0}), InvalidArgument);
  EXPECT_THROW(allocator_->allocate(kMaxRequestBytes + 1), InvalidArgument);
  const DataPtr block = allocator_->allocate(512);
  EXPECT_THROW(allocator_->record_stream(block, Stream{{DeviceType::kCuda, 3}, 0}),
               InvalidArgument);
}

TEST_P(StreamOrdered, RawPointersAreCheckedWhenFreed) {
  void* raw = allocator_->raw_allocate(1000);
  allocator_->raw_deallocate(raw);
  EXPECT_THROW(allocator_->raw_deallocate(raw), InvalidPointer);
  EXPECT_THROW(allocator_->raw_deallocate(this), InvalidPointer);
  allocator_->raw_deallocate(nullptr);
  EXPECT_EQ(named(*allocator_)["allocation.all.current"], 0);
}

TEST_P(StreamOrdered, StaysWithinItsMemoryFraction) {
  start({.capacity_bytes = 1 * kGiB}, {.conf = "per_process_memory_fraction:0.5"});
  const DataPtr fits = allocator_->allocate(400 * kMiB);
  try {
    static_cast<void>(allocator_->allocate(200 * kMiB));
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.details().limit_bytes, 512 * kMiB);
    EXPECT_EQ(error.details().requested_bytes, 200 * kMiB);
    EXPECT_GE(error.details().allocated_bytes, 400 * kMiB);
  }
  EXPECT_EQ(named(*allocator_)["num_ooms"], 1);
  EXPECT_NO_THROW(static_cast<void>(allocator_->allocate(50 * kMiB)));
}

TEST_P(StreamOrdered, BlocksFreedOnAnotherThreadComeBack) {
  for (int round = 0; round < 20; ++round) {
    std::vector<DataPtr> blocks;
    for (int i = 0; i < 50; ++i) blocks.push_back(allocator_->allocate(100'000));
    std::thread([moved = std::move(blocks)]() mutable { moved.clear(); }).join();
  }
  EXPECT_EQ(named(*allocator_)["allocation.all.current"], 0);
  EXPECT_LE(allocator_->reserved_bytes(), 32 * kMiB);
}

TEST_P(StreamOrdered, PeaksOverSeveralStreamsAreOfTheirSum) {
  DataPtr a = allocator_->allocate(40 * kMiB);
  DataPtr b = allocator_->allocate_on(40 * kMiB, side_);
  b.clear();
  a.clear();
  DataPtr c = allocator_->allocate_on(60 * kMiB, side_);
  const std::int64_t peak = named(*allocator_)["allocated_bytes.all.peak"];
  EXPECT_NEAR(static_cast<double>(peak), 80.0 * kMiB, 2.0 * kMiB);
}

// Of equal free blocks PyTorch up to 2.11 takes that at the lowest address, and from 2.13 on that
// in the oldest segment. New segments lie below older ones here.
TEST(CachingAllocatorTest, AmongEqualBlocksTakesTheLowestOrTheOldestSegments) {
  for (const bool oldest : {false, true}) {
    SimBackend device;
    const auto allocator =
        make_policy("caching", device, {.oldest_segment_first = oldest});
    DataPtr older = allocator->allocate(12 * kMiB), newer = allocator->allocate(12 * kMiB);
    DataPtr front = allocator->allocate(2 * kMiB), back = allocator->allocate(2 * kMiB);
    void* const wanted = oldest ? older.get() : newer.get();
    void* const in_segment = front.get();
    older.clear();
    newer.clear();
    EXPECT_EQ(allocator->allocate(12 * kMiB).get(), wanted);
    const DataPtr between = allocator->allocate(2 * kMiB);
    front.clear();
    EXPECT_EQ(allocator->allocate(2 * kMiB).get(), in_segment) << "by address in one segment";
    allocator->check_invariants();
    const SegmentInfo segment = allocator->snapshot().front();
    EXPECT_EQ(segment.blocks.front().address, segment.address);
  }
}

TEST(CachingAllocatorTest, TheOrderOfSegmentsIsAnOptionOfCachingAlone) {
  SimBackend device;
  EXPECT_THROW(make_policy("stitched", device, {.oldest_segment_first = true}), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(All, StreamOrdered,
                         ::testing::Values("caching", "expandable", "stitched"),
                         [](const auto& tested) { return tested.param; });

// Reserved bytes after one request: PyTorch's own table.
TEST(CachingAllocator, ReservesPyTorchsSegments) {
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> cases = {
      {512, 2 * kMiB},           {kMiB, 2 * kMiB},        {kMiB + 512, 20 * kMiB},
      {10 * kMiB - 512, 20 * kMiB}, {10 * kMiB, 10 * kMiB}, {10 * kMiB + 512, 12 * kMiB}};
  for (const auto& [request, reserved] : cases) {
    SimBackend backend;
    CachingAllocator allocator(backend);
    const DataPtr block = allocator.allocate(request);
    EXPECT_EQ(allocator.reserved_bytes(), reserved) << request;
  }
}

TEST(CachingAllocator, KeepsStreamsApart) {
  SimBackend backend;
  const Stream side = backend.create_stream();
  CachingAllocator allocator(backend);
  static_cast<void>(allocator.allocate(50 * kMiB));
  static_cast<void>(allocator.allocate_on(50 * kMiB, side));
  EXPECT_EQ(allocator.reserved_bytes(), 100 * kMiB);
}

TEST(CachingAllocator, NeitherCutsNorLendsOversizeBlocks) {
  SimBackend backend;
  CachingAllocator allocator(backend, parse_caching_settings("max_split_size_mb:64"));
  static_cast<void>(allocator.allocate(100 * kMiB));
  static_cast<void>(allocator.allocate(40 * kMiB));  // not out of the 100 MiB
  EXPECT_EQ(allocator.reserved_bytes(), 140 * kMiB);
  static_cast<void>(allocator.allocate(90 * kMiB));  // within the rounding allowed
  EXPECT_EQ(allocator.reserved_bytes(), 140 * kMiB);
  static_cast<void>(allocator.allocate(70 * kMiB));  // not within
  EXPECT_EQ(allocator.reserved_bytes(), 210 * kMiB);
}

TEST(CachingAllocator, CountsOversizeBlocksAndSegments) {
  SimBackend backend;
  CachingAllocator allocator(backend, parse_caching_settings("max_split_size_mb:64"));
  DataPtr first = allocator.allocate(100 * kMiB);
  DataPtr small = allocator.allocate(40 * kMiB);
  auto counts = named(allocator);
  EXPECT_EQ(counts["oversize_allocations.current"], 1);
  EXPECT_EQ(counts["oversize_segments.current"], 1);
  const Stream side = backend.create_stream();
  allocator.record_stream(first, side);
  first.clear();  // freed, though its memory is still in use
  EXPECT_EQ(named(allocator)["oversize_allocations.current"], 0);
  small.clear();
  backend.synchronize();
  allocator.empty_cache();
  counts = named(allocator);
  EXPECT_EQ(counts["oversize_segments.current"], 0);
  EXPECT_EQ(counts["oversize_segments.freed"], 1);
  EXPECT_EQ(counts["oversize_allocations.peak"], 1);
  EXPECT_EQ(counts["oversize_allocations.allocated"], 1);
  allocator.reset_peak_stats();
  EXPECT_EQ(named(allocator)["oversize_allocations.peak"], 0);
}

// A segment is rounded up, and may so become an oversize block itself.
TEST(CachingAllocator, ServesARequestJustBelowTheOversizeBorder) {
  SimBackend backend;
  CachingAllocator allocator(backend, parse_caching_settings("max_split_size_mb:24"), 60 * kMiB);
  const DataPtr first = allocator.allocate(24 * kMiB - 512);
  EXPECT_EQ(allocator.reserved_bytes(), 24 * kMiB);
  const DataPtr second = allocator.allocate(24 * kMiB - 512);
  EXPECT_EQ(allocator.reserved_bytes(), 48 * kMiB);
  EXPECT_THROW(allocator.allocate(24 * kMiB - 512), OutOfMemory);
}

TEST(CachingAllocator, GivesCachedSegmentsBackBeforeItFails) {
  SimBackend backend({.capacity_bytes = 64 * kMiB});
  CachingAllocator allocator(backend);
  allocator.allocate(30 * kMiB).clear();
  const DataPtr larger = allocator.allocate(50 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 50 * kMiB);
  EXPECT_EQ(allocator.stats().num_alloc_retries, 1);
  EXPECT_EQ(allocator.stats().num_ooms, 0);
}

TEST(CachingAllocator, CollectsGarbageAboveTheThreshold) {
  SimBackend backend;
  CachingAllocator allocator(backend, parse_caching_settings("garbage_collection_threshold:0.5"),
                             400 * kMiB);
  static_cast<void>(allocator.allocate(150 * kMiB));
  static_cast<void>(allocator.allocate(160 * kMiB));  // 310 MiB held, above 200
  EXPECT_EQ(allocator.reserved_bytes(), 310 * kMiB);
  static_cast<void>(allocator.allocate(170 * kMiB));  // collects first: 310 + 170 would not fit
  EXPECT_LE(allocator.reserved_bytes(), 330 * kMiB);
  EXPECT_EQ(allocator.stats().num_alloc_retries, 0);
}

// As PyTorch: max_split_size keeps oversize blocks whole in fixed segments only.
TEST(ExpandableAllocator, CutsRequestsAboveMaxSplitSizeToo) {
  SimBackend backend;
  const auto allocator = make_policy("expandable", backend, {.conf = "max_split_size_mb:64"});
  const DataPtr large = allocator->allocate(90 * kMiB);
  EXPECT_EQ(allocator->reserved_bytes(), 100 * kMiB);
  const DataPtr rest = allocator->allocate(8 * kMiB);
  EXPECT_EQ(allocator->reserved_bytes(), 100 * kMiB);
}

TEST(ExpandableAllocator, RefusesSegmentsThatAreNoMultipleOfThePages) {
  SimBackend backend;
  try {
    make_policy("expandable", backend, {.conf = "large_segment_size_mb:21"});
    FAIL() << "21 MiB were taken";
  } catch (const InvalidArgument& refused) {
    EXPECT_THAT(refused.what(), ::testing::HasSubstr("large_segment_size_mb:21"));
    EXPECT_THAT(refused.what(), ::testing::HasSubstr("2 MiB"));
  }
}

// What fixed segments cannot do: the free halves of two segments serve one request.
TEST(StitchedAllocator, ServesALargeBlockFromScatteredPages) {
  SimBackend backend;
  StitchedAllocator allocator(backend);
  std::vector<DataPtr> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(allocator.allocate(16 * kMiB));
  for (int i = 0; i < 16; i += 2) blocks[static_cast<std::size_t>(i)].clear();
  const DataPtr large = allocator.allocate(128 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 256 * kMiB);
}

TEST(StitchedAllocator, ComesBackToALayoutWithoutDriverCalls) {
  SimBackend backend;
  StitchedAllocator allocator(backend);
  std::vector<DataPtr> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(allocator.allocate(16 * kMiB));
  for (int i = 0; i < 16; i += 2) blocks[static_cast<std::size_t>(i)].clear();
  DataPtr large = allocator.allocate(128 * kMiB);  // moves eight pages
  const std::uint64_t calls = backend.ledger().memory_calls();
  for (int round = 0; round < 20; ++round) {
    large.clear();
    std::vector<DataPtr> small;
    for (int i = 0; i < 8; ++i) small.push_back(allocator.allocate(16 * kMiB));
    small.clear();
    large = allocator.allocate(128 * kMiB);
  }
  EXPECT_EQ(backend.ledger().memory_calls(), calls);
}

TEST(StitchedAllocator, MovesPagesBetweenStreams) {
  SimBackend backend({.capacity_bytes = 256 * kMiB, .lag_ns = 1'000'000});
  const Stream side = backend.create_stream();
  StitchedAllocator allocator(backend);
  static_cast<void>(allocator.allocate(240 * kMiB));
  const DataPtr other = allocator.allocate_on(240 * kMiB, side);
  EXPECT_LE(allocator.reserved_bytes(), 256 * kMiB);
}

TEST(StitchedAllocator, ThreadsTakeEachOthersPagesOnlyWhenMemoryIsShort) {
  SimBackend backend({.capacity_bytes = 768 * kMiB, .lag_ns = 1'000'000});
  const Stream side = backend.create_stream();
  StitchedAllocator allocator(backend);
  const DataPtr kept = allocator.allocate(64 * kMiB);
  allocator.allocate(240 * kMiB).clear();
  std::thread([&] {
    allocator.allocate_on(240 * kMiB, side).clear();
    EXPECT_EQ(allocator.reserved_bytes(), 544 * kMiB);
    allocator.allocate_on(256 * kMiB, side).clear();
    EXPECT_EQ(allocator.reserved_bytes(), 560 * kMiB) << "its own pages serve it again";
    const DataPtr most = allocator.allocate_on(700 * kMiB, side);
    allocator.check_invariants();
  }).join();
  EXPECT_LE(allocator.reserved_bytes(), 768 * kMiB);
  const DataPtr back = allocator.allocate(240 * kMiB);
  allocator.check_invariants();
}

// A small block goes to the end of the free block where it enters no free page.
TEST(StitchedAllocator, LeavesFreePagesWhole) {
  SimBackend backend;
  StitchedAllocator allocator(backend);
  const DataPtr before = allocator.allocate(16 * kMiB);
  DataPtr hole = allocator.allocate(36 * kMiB);
  const DataPtr after = allocator.allocate(12 * kMiB);
  hole.clear();  // two whole pages and 4 MiB of the one that `after` lives in
  const DataPtr small = allocator.allocate(3 * kMiB);
  EXPECT_EQ(allocator.layout_offset(small) + 3 * kMiB, allocator.layout_offset(after));
  const DataPtr large = allocator.allocate(33 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 64 * kMiB);
}

// A small block that its pool has no room for goes where the large pool has some, before small
// pages are made.
TEST(StitchedAllocator, SmallBlocksUseWhatIsFreeOfLargePages) {
  SimBackend backend;
  StitchedAllocator allocator(backend);
  const DataPtr large = allocator.allocate(14 * kMiB);
  std::vector<DataPtr> small;
  for (int i = 0; i < 2; ++i) small.push_back(allocator.allocate(kMiB));
  EXPECT_EQ(allocator.reserved_bytes(), 16 * kMiB);
  small.push_back(allocator.allocate(kMiB));
  EXPECT_EQ(allocator.reserved_bytes(), 18 * kMiB) << "nothing was free: a small page";
  small.erase(small.begin());
  small.push_back(allocator.allocate(kMiB));
  small.push_back(allocator.allocate(kMiB));
  EXPECT_EQ(allocator.reserved_bytes(), 18 * kMiB);
  allocator.check_invariants();
}

// In a large program a small block keeps no large page in use.
TEST(StitchedAllocator, SmallBlocksOfLargeProgramsKeepToSmallPages) {
  SimBackend backend;
  StitchedAllocator allocator(backend);
  const DataPtr large = allocator.allocate(6 * kGiB - 2 * kMiB);
  const DataPtr small = allocator.allocate(kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 6 * kGiB);
  const DataPtr more = allocator.allocate(14 * kMiB);  // 384 pages are passed
  std::vector<DataPtr> others;
  for (int i = 0; i < 2; ++i) others.push_back(allocator.allocate(kMiB));
  EXPECT_EQ(allocator.reserved_bytes(), 6 * kGiB + 18 * kMiB);
}

// Pages for small blocks are of another size and cannot move to large ones: they are released.
TEST(StitchedAllocator, IdleSmallPagesMakeRoomWhenMemoryIsShort) {
  SimBackend backend({.capacity_bytes = 64 * kMiB});
  StitchedAllocator allocator(backend);
  std::vector<DataPtr> small;
  for (int i = 0; i < 64; ++i) small.push_back(allocator.allocate(kMiB));
  EXPECT_EQ(allocator.reserved_bytes(), 64 * kMiB);
  small.clear();
  DataPtr large = allocator.allocate(64 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 64 * kMiB);
  large.clear();
  for (int i = 0; i < 64; ++i) small.push_back(allocator.allocate(kMiB));
  allocator.check_invariants();
  EXPECT_EQ(allocator.reserved_bytes(), 64 * kMiB);
}

TEST(StitchedAllocator, ManyStreamsHaveAddressesEnough) {
  SimOptions options;
  options.capacity_bytes = 2 * kGiB;
  options.real_memory = true;
  SimBackend backend(options);
  StitchedAllocator allocator(backend);
  std::vector<DataPtr> blocks;
  for (int i = 0; i < 60; ++i) {
    const Stream stream = backend.create_stream();
    blocks.push_back(allocator.allocate_on(100, stream));
    blocks.push_back(allocator.allocate_on(4 * kMiB, stream));
  }
  EXPECT_EQ(allocator.reserved_bytes(), 60 * (2 + 4) * kMiB);
}

TEST(StitchedAllocator, EmptyCacheGivesIdlePagesBack) {
  SimBackend backend({.lag_ns = 1'000'000});
  StitchedAllocator allocator(backend);
  const DataPtr kept = allocator.allocate(16 * kMiB);
  static_cast<void>(allocator.allocate(200 * kMiB));
  allocator.empty_cache();
  EXPECT_EQ(allocator.reserved_bytes(), 16 * kMiB);
  EXPECT_EQ(backend.used_bytes(), 16 * kMiB);
}

TEST(StitchedAllocator, PagesAreFinerWhereMemoryIsSmall) {
  const auto reserved_for_3_mib = [](std::uint64_t capacity_bytes, std::uint64_t limit_bytes) {
    SimBackend backend({.capacity_bytes = capacity_bytes});
    StitchedAllocator allocator(backend, {}, {}, limit_bytes);
    const DataPtr block = allocator.allocate(3 * kMiB);
    return allocator.reserved_bytes();
  };
  EXPECT_EQ(reserved_for_3_mib(1 * kTiB, 0), 16 * kMiB);
  EXPECT_EQ(reserved_for_3_mib(8 * kGiB, 0), 16 * kMiB);
  EXPECT_EQ(reserved_for_3_mib(8 * kGiB - 1, 0), 8 * kMiB);
  EXPECT_EQ(reserved_for_3_mib(1 * kTiB, 3 * kGiB), 4 * kMiB);
  EXPECT_EQ(reserved_for_3_mib(64 * kMiB, 0), 4 * kMiB);  // two pages of the smallest sort
}

TEST(StitchedAllocator, RefusesBackendsAndSettingsThatCannotWork) {
  SimBackend once({.can_map_twice = false});
  EXPECT_THROW(StitchedAllocator{once}, InvalidArgument);
  SimBackend backend;
  EXPECT_THROW((StitchedAllocator{backend, {.page_bytes = 3 * kMiB}}), InvalidArgument);
  EXPECT_THROW((StitchedAllocator{backend, {.small_page_bytes = 0}}), InvalidArgument);
  EXPECT_THROW((StitchedAllocator{backend, {.slack = -1}}), InvalidArgument);
}

}  // namespace
}  // namespace tenon
