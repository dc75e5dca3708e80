#include "tenon/memory/placement/plan_allocator.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "memory/planned_program.h"
#include "tenon/base/error.h"
#include "tenon/base/random.h"
#include "tenon/device/sim/sim_backend.h"

namespace tenon {
namespace {

class PlanAllocatorTest : public ::testing::Test {
 protected:
  // Runs the program; `stray` may change what is asked for. Checks that live blocks are apart.
  template <typename Stray>
  void run(PlanAllocator& allocator, const std::vector<Call>& program, Stray&& stray) {
    std::vector<DataPtr> blocks;
    std::map<std::uintptr_t, std::uintptr_t> live;
    for (const Call& call : program) {
      if (call.size == 0) {
        DataPtr& block = blocks[call.block];
        live.erase(reinterpret_cast<std::uintptr_t>(block.get()));
        block.clear();
        continue;
      }
      const std::uint64_t size = stray(call.size);
      blocks.push_back(size == 0 ? DataPtr() : allocator.allocate(size));
      const auto begin = reinterpret_cast<std::uintptr_t>(blocks.back().get());
      if (begin == 0) continue;
      const auto above = live.lower_bound(begin);
      if (above != live.end()) {
        ASSERT_LE(begin + size, above->first);
      }
      if (above != live.begin()) {
        ASSERT_LE(std::prev(above)->second, begin);
      }
      live[begin] = begin + size;
    }
    blocks.clear();
    allocator.check_invariants();
  }
  void run(PlanAllocator& allocator, const std::vector<Call>& program) {
    run(allocator, program, [](std::uint64_t size) { return size; });
  }

  SimBackend backend_;
  const std::vector<Call> program_ = random_program(1, 2000);
  const Plan plan_ = best_fit_plan(program_);
  const std::uint64_t requests_ = plan_.stream(0)->slots.size();
};

TEST_F(PlanAllocatorTest, AProgramThatKeepsToThePlanNeedsOneSegmentOfItsSize) {
  PlanAllocator allocator(backend_, &plan_);
  for (int round = 1; round <= 3; ++round) {
    run(allocator, program_);
    EXPECT_EQ(allocator.report().served, round * requests_);
    EXPECT_EQ(allocator.report().diverged(), 0u);
  }
  EXPECT_EQ(backend_.peak_used_bytes(), plan_.total_bytes());
  EXPECT_EQ(backend_.ledger().memory_calls(), 1u);
  allocator.empty_cache();
  EXPECT_EQ(backend_.used_bytes(), 0u);
  run(allocator, program_);
  EXPECT_EQ(allocator.report().served, 4 * requests_) << "the memory comes back when needed";
}

// As recorded work needs it, whose addresses must serve nothing else.
TEST_F(PlanAllocatorTest, MemoryThatStaysIsNotGivenBackAlsoOffThePlan) {
  PlanAllocator allocator(backend_, &plan_, 0, PlanAllocator::FreeMemory::kStays);
  run(allocator, program_);
  EXPECT_EQ(backend_.used_bytes(), plan_.total_bytes());
  void* const off_plan = allocator.allocate(123456789).get();
  const std::uint64_t used = backend_.used_bytes();
  EXPECT_GE(used, plan_.total_bytes() + 123456789);
  allocator.empty_cache();
  EXPECT_EQ(backend_.used_bytes(), used);
  EXPECT_EQ(allocator.reserved_bytes(), used);
  EXPECT_EQ(allocator.allocate(123456789).get(), off_plan);
}

TEST_F(PlanAllocatorTest, NeedsAPlan) {
  EXPECT_THROW(PlanAllocator(backend_, nullptr), InvalidArgument);
}

TEST_F(PlanAllocatorTest, OneRequestMoreIsServedElsewhereAndTheRestAsPlanned) {
  PlanAllocator allocator(backend_, &plan_);
  std::vector<Call> longer = program_;
  for (Call& call : longer)
    if (call.size == 0) ++call.block;
  longer.insert(longer.begin(), Call{123456789, 0});
  run(allocator, longer);
  EXPECT_EQ(allocator.report().served, requests_);
  EXPECT_EQ(allocator.report().wrong_size, 1u);
}

TEST_F(PlanAllocatorTest, AProgramThatLeavesRequestsOutIsFoundAgain) {
  PlanAllocator allocator(backend_, &plan_);
  int number = 0;
  run(allocator, program_, [&](std::uint64_t size) {
    ++number;
    return number >= 100 && number < 120 ? 0 : size;
  });
  EXPECT_GE(allocator.report().served, requests_ - 20 - 40);
  EXPECT_GE(allocator.report().resynchronised, 1u);
  EXPECT_GT(allocator.report().diverged(), 0u);
}

TEST_F(PlanAllocatorTest, ARoundThatEndsEarlyIsFollowedByAPlannedOne) {
  PlanAllocator allocator(backend_, &plan_);
  std::vector<Call> half;
  std::vector<bool> freed(requests_);
  std::size_t allocated = 0;
  for (std::size_t i = 0; i < program_.size() / 2; ++i) {
    half.push_back(program_[i]);
    if (program_[i].size != 0)
      ++allocated;
    else
      freed[program_[i].block] = true;
  }
  for (std::size_t block = 0; block < allocated; ++block)
    if (!freed[block]) half.push_back({0, block});
  run(allocator, half);
  const std::uint64_t before = allocator.report().served;
  run(allocator, program_);
  EXPECT_GE(allocator.report().served - before, requests_ - 10);
}

TEST_F(PlanAllocatorTest, NothingOverlapsHoweverTheProgramStrays) {
  for (std::uint64_t seed = 1; seed <= 15; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    PlanAllocator allocator(backend_, &plan_);
    Random random(seed);
    const double rate = 0.002 * static_cast<double>(seed);
    for (int round = 0; round < 3; ++round) {
      run(allocator, program_, [&](std::uint64_t size) -> std::uint64_t {
        if (!random.chance(rate)) return size;
        return random.chance(0.5) ? 0 : 1 + random.below(1 << 20);
      });
    }
    EXPECT_EQ(allocator.stats().allocation[0].current, 0);
    const PlanAdherence report = allocator.report();
    EXPECT_GT(report.diverged(), 0u);
    EXPECT_GT(report.served, 0u);
  }
}

TEST_F(PlanAllocatorTest, AStreamWithoutAPlanIsServedByTheFallback) {
  PlanAllocator allocator(backend_, &plan_);
  const Stream other = backend_.create_stream();
  const DataPtr block = allocator.allocate_on(5000, other);
  EXPECT_TRUE(block);
  EXPECT_EQ(allocator.report().unplanned, 1u);
  EXPECT_EQ(allocator.stats().allocation[0].current, 1);
  EXPECT_NE(allocator.report_text().find("1 not planned for"), std::string::npos);
}

TEST_F(PlanAllocatorTest, WhereThePlanDoesNotFitTheFallbackServes) {
  backend_.set_capacity(plan_.total_bytes() / 2);
  PlanAllocator allocator(backend_, &plan_);
  const DataPtr block = allocator.allocate(program_[0].size);
  EXPECT_TRUE(block);
  const std::uint64_t calls = backend_.ledger().memory_calls();
  const DataPtr again = allocator.allocate(1000);
  EXPECT_LE(backend_.ledger().memory_calls(), calls + 1) << "asked for again";
  EXPECT_EQ(allocator.report().served, 0u);
}

}  // namespace
}  // namespace tenon
