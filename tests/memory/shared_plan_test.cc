// Plans whose streams share one range of memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "memory/planned_program.h"
#include "tenon/base/random.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/placement/plan_allocator.h"

namespace tenon {
namespace {

constexpr std::uint32_t kSharingStreams = 3;

class SharedPlan : public ::testing::Test {
 protected:
  SharedPlan() {
    streams_.push_back({backend_.device(), 0});
    while (streams_.size() < kSharingStreams) streams_.push_back(backend_.create_stream());
  }

  // Runs the program with work queued after each allocation and before each free. Checks that live
  // blocks are apart and, by happens-before, that no memory is reused too early.
  template <typename Stray>
  void run(PlanAllocator& allocator, const std::vector<Call>& program, Stray&& stray) {
    struct Held {
      DataPtr data;
      Stream stream;
      std::uint64_t size, owner;
    };
    std::vector<Held> blocks;
    std::map<std::uintptr_t, std::uintptr_t> live;
    const auto use = [&](const Held& held) {
      backend_.queue_work(held.stream);
      backend_.access(held.stream, held.data.get(), held.size, held.owner);
    };
    for (const Call& call : program) {
      if (call.size == 0) {
        Held& held = blocks[call.block];
        if (!held.data) continue;
        use(held);
        live.erase(reinterpret_cast<std::uintptr_t>(held.data.get()));
        held.data.clear();
        continue;
      }
      const std::uint64_t size = stray(call.size);
      const Stream stream = streams_[call.stream];
      blocks.push_back({size == 0 ? DataPtr() : allocator.allocate_on(size, stream), stream, size,
                        ++owners_});
      const auto begin = reinterpret_cast<std::uintptr_t>(blocks.back().data.get());
      if (begin == 0) continue;
      const auto above = live.lower_bound(begin);
      ASSERT_TRUE(above == live.end() || begin + size <= above->first);
      ASSERT_TRUE(above == live.begin() || std::prev(above)->second <= begin);
      live[begin] = begin + size;
      use(blocks.back());
    }
    blocks.clear();
    allocator.check_invariants();
    EXPECT_EQ(backend_.order_violations(), std::vector<std::string>());
  }
  void run(PlanAllocator& allocator, const std::vector<Call>& program) {
    run(allocator, program, [](std::uint64_t size) { return size; });
  }

  SimBackend backend_{{.lag_ns = 5'000'000, .check_order = true}};
  std::vector<Stream> streams_;
  std::uint64_t owners_ = 0;
  const std::vector<Call> program_ = random_program(1, 1500, kSharingStreams);
  const Plan plan_ = best_fit_plan(program_, kSharingStreams);
};

TEST_F(SharedPlan, NeedsOneSegmentForAllStreams) {
  PlanAllocator allocator(backend_, &plan_);
  for (int round = 0; round < 3; ++round) run(allocator, program_);
  EXPECT_EQ(allocator.report().diverged(), 0u);
  EXPECT_EQ(allocator.report().unplanned, 0u);
  EXPECT_EQ(backend_.peak_used_bytes(), plan_.total_bytes());
  EXPECT_EQ(allocator.stats().segment[0].current, 1);
  allocator.empty_cache();
  EXPECT_EQ(backend_.used_bytes(), 0u);
  run(allocator, program_);
  EXPECT_EQ(allocator.report().diverged(), 0u) << "the memory comes back when needed";
}

TEST_F(SharedPlan, KeepsItsMemoryWhileAnyStreamUsesIt) {
  PlanAllocator allocator(backend_, &plan_);
  // The program as planned, until every stream holds something.
  std::vector<DataPtr> blocks;
  std::vector<std::uint32_t> stream_of;
  std::vector<std::size_t> held(kSharingStreams);
  for (const Call& call : program_) {
    if (std::find(held.begin(), held.end(), 0u) == held.end()) break;
    if (call.size == 0) {
      blocks[call.block].clear();
      --held[stream_of[call.block]];
    } else {
      blocks.push_back(allocator.allocate_on(call.size, streams_[call.stream]));
      stream_of.push_back(call.stream);
      ++held[call.stream];
    }
  }
  ASSERT_EQ(allocator.report().diverged(), 0u);
  allocator.check_invariants();
  std::size_t active = 0;
  for (const SegmentInfo& segment : allocator.snapshot())
    for (const BlockInfo& block : segment.blocks)
      active += block.state == BlockInfo::State::kActive ? 1 : 0;
  EXPECT_EQ(active, held[0] + held[1] + held[2]);
  // The stream that brought the memory is done with it.
  for (std::size_t i = 0; i < blocks.size(); ++i)
    if (stream_of[i] == stream_of[0]) blocks[i].clear();
  allocator.empty_cache();
  EXPECT_EQ(backend_.used_bytes(), plan_.total_bytes());
  blocks.clear();
  allocator.empty_cache();
  EXPECT_EQ(backend_.used_bytes(), 0u);
}

TEST_F(SharedPlan, StreamsThatInterleaveOtherwiseNeverOverlap) {
  // The same calls for each stream, but the streams run one after another for a while at a time.
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::vector<Call> shuffled;
    std::vector<std::vector<Call>> by_stream(kSharingStreams);
    std::vector<std::uint32_t> stream_of;
    std::vector<std::size_t> number(program_.size());
    for (const Call& call : program_) {
      if (call.size != 0) stream_of.push_back(call.stream);
      by_stream[call.size != 0 ? call.stream : stream_of[call.block]].push_back(call);
    }
    // Blocks are named by stream and order there, and numbered anew as they are allocated.
    std::vector<std::vector<std::size_t>> recorded(kSharingStreams);
    for (std::size_t block = 0; block < stream_of.size(); ++block)
      recorded[stream_of[block]].push_back(block);
    std::vector<std::size_t> next(kSharingStreams), allocated(kSharingStreams);
    std::size_t made = 0;
    for (bool more = true; more;) {
      const std::size_t stream = random.below(kSharingStreams);
      for (std::uint64_t n = 1 + random.below(20); n > 0; --n) {
        if (next[stream] == by_stream[stream].size()) break;
        Call call = by_stream[stream][next[stream]++];
        if (call.size != 0)
          number[recorded[stream][allocated[stream]++]] = made++;
        else
          call.block = number[call.block];
        shuffled.push_back(call);
      }
      more = shuffled.size() < program_.size();
    }
    PlanAllocator allocator(backend_, &plan_);
    run(allocator, shuffled);
    EXPECT_GT(allocator.report().served, 0u);
  }
}

TEST_F(SharedPlan, NothingOverlapsHoweverTheProgramStrays) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    PlanAllocator allocator(backend_, &plan_);
    Random random(seed);
    const double rate = 0.004 * static_cast<double>(seed);
    for (int round = 0; round < 2; ++round)
      run(allocator, program_, [&](std::uint64_t size) -> std::uint64_t {
        if (!random.chance(rate)) return size;
        return random.chance(0.5) ? 0 : 1 + random.below(1 << 18);
      });
    EXPECT_GT(allocator.report().diverged(), 0u);
    EXPECT_EQ(allocator.stats().allocation[0].current, 0);
  }
}

}  // namespace
}  // namespace tenon
