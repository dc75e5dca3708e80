#include "tenon/device/sim/order_checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/base/random.h"
#include "tenon/device/sim/sim_backend.h"

namespace tenon {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Two streams, one segment and one address range with a mapped handle of 2 MiB at its start.
class StreamOrder : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(sim_.map(range_.base, pages_));
    ASSERT_TRUE(sim_.set_access(range_.base, pages_.size_bytes));
  }

  void* at(std::uint64_t offset) { return static_cast<char*>(segment_.base) + offset; }
  void* page_at(std::uint64_t offset) { return reinterpret_cast<void*>(range_.base + offset); }
  void map_second_time() {
    ASSERT_TRUE(sim_.map(range_.base + 4 * kMiB, pages_));
    ASSERT_TRUE(sim_.set_access(range_.base + 4 * kMiB, pages_.size_bytes));
  }

  SimBackend sim_{{.lag_ns = 1'000'000, .check_order = true}};
  const Stream first_{sim_.device(), 0};
  const Stream second_ = sim_.create_stream();
  const Stream third_ = sim_.create_stream();
  const Segment segment_ = *sim_.allocate_segment(kMiB);
  const AddressRange range_ = *sim_.reserve_address(8 * kMiB);
  const PageHandle pages_ = *sim_.create_pages(2 * kMiB);
};

TEST_F(StreamOrder, ReuseOnTheSameStreamIsLegal) {
  sim_.access(first_, at(0), 4096, 1);
  sim_.access(first_, at(0), 4096, 2);
  EXPECT_THAT(sim_.order_violations(), IsEmpty());
}

TEST_F(StreamOrder, ReuseOnAnotherStreamWithoutOrderIsCaught) {
  sim_.access(first_, at(0), 4096, 1);
  sim_.access(second_, at(2048), 4096, 2);
  EXPECT_THAT(sim_.order_violations(),
              ElementsAre(AllOf(HasSubstr("early reuse: stream 1"), HasSubstr("for block 2"),
                                HasSubstr("(2048 bytes)"), HasSubstr("stream 0"),
                                HasSubstr("for block 1"))));
}

TEST_F(StreamOrder, NeighboursDoNotDisturbEachOther) {
  sim_.access(first_, at(0), 4096, 1);
  sim_.access(second_, at(4096), 4096, 2);
  EXPECT_THAT(sim_.order_violations(), IsEmpty());
}

TEST_F(StreamOrder, OneBlockUsedByTwoStreamsIsTheProgramsOwnAffair) {
  sim_.access(first_, at(0), 4096, 1);
  sim_.access(second_, at(0), 4096, 1);
  EXPECT_THAT(sim_.order_violations(), IsEmpty());
}

TEST_F(StreamOrder, ReuseAfterStreamWaitIsLegal) {
  sim_.access(first_, at(0), 4096, 1);
  sim_.stream_wait(second_, sim_.record(first_));
  sim_.access(second_, at(0), 4096, 2);
  EXPECT_THAT(sim_.order_violations(), IsEmpty());
}

TEST_F(StreamOrder, OrderIsTransitiveAcrossStreams) {
  sim_.access(first_, at(0), 4096, 1);
  sim_.stream_wait(second_, sim_.record(first_));
  sim_.stream_wait(third_, sim_.record(second_));
  sim_.access(third_, at(0), 4096, 2);
  EXPECT_THAT(sim_.order_violations(), IsEmpty());
}

TEST_F(StreamOrder, AnEventFromBeforeTheWorkDoesNotOrderIt) {
  const Event too_early = sim_.record(first_);
  sim_.access(first_, at(0), 4096, 1);
  sim_.stream_wait(second_, too_early);
  sim_.access(second_, at(0), 4096, 2);
  EXPECT_THAT(sim_.order_violations(), SizeIs(1));
}

TEST_F(StreamOrder, EveryStreamThatUsedTheBlockMustBeAwaited) {
  sim_.access(first_, at(0), 4096, 1);
  sim_.access(third_, at(0), 4096, 1);
  sim_.stream_wait(second_, sim_.record(first_));
  sim_.access(second_, at(0), 4096, 2);
  EXPECT_THAT(sim_.order_violations(), ElementsAre(HasSubstr("stream 2's use")));
}

TEST_F(StreamOrder, AnOlderOwnerIsRememberedBehindANewerOne) {
  sim_.access(first_, at(0), 4096, 1);
  sim_.stream_wait(second_, sim_.record(first_));
  sim_.access(second_, at(0), 4096, 2);
  sim_.access(third_, at(0), 4096, 2);  // ordered after nothing of block 1
  EXPECT_THAT(sim_.order_violations(),
              ElementsAre(AllOf(HasSubstr("stream 2 uses"), HasSubstr("for block 1"))));
}

TEST_F(StreamOrder, AnEventThatHasCompletedOrdersAllLaterWork) {
  sim_.access(first_, at(0), 4096, 1);
  const Event event = sim_.record(first_);
  EXPECT_FALSE(sim_.query(event));
  sim_.access(second_, at(0), 64, 2);
  EXPECT_THAT(sim_.order_violations(), SizeIs(1)) << "a query that fails orders nothing";
  sim_.advance_to(10'000'000);
  sim_.access(second_, at(64), 64, 3);
  EXPECT_THAT(sim_.order_violations(), SizeIs(2)) << "luck is no order";
  EXPECT_TRUE(sim_.query(event));
  sim_.access(second_, at(128), 64, 4);
  EXPECT_THAT(sim_.order_violations(), SizeIs(2));
}

TEST_F(StreamOrder, HostWaitsOrderAllLaterWork) {
  sim_.access(first_, at(0), 4096, 1);
  sim_.wait(sim_.record(first_));
  sim_.access(second_, at(0), 4096, 2);
  sim_.synchronize(second_);
  sim_.access(third_, at(0), 4096, 3);
  sim_.synchronize();
  sim_.access(first_, at(0), 4096, 4);
  EXPECT_THAT(sim_.order_violations(), IsEmpty());
}

TEST_F(StreamOrder, AHandleIsFollowedToItsOtherAddress) {
  map_second_time();
  sim_.access(first_, page_at(0), 4096, 1);
  sim_.access(second_, page_at(4 * kMiB + 4096), 4096, 2);
  EXPECT_THAT(sim_.order_violations(), IsEmpty());
  sim_.access(second_, page_at(4 * kMiB), 4096, 3);
  EXPECT_THAT(sim_.order_violations(), ElementsAre(HasSubstr("early reuse")));
}

TEST_F(StreamOrder, ADoublyMappedHandleInOneStreamIsLegal) {
  map_second_time();
  sim_.access(first_, page_at(0), 2 * kMiB, 1);
  sim_.access(first_, page_at(4 * kMiB), 2 * kMiB, 2);
  const Event event = sim_.record(first_);
  sim_.access(first_, page_at(4 * kMiB), 2 * kMiB, 2);
  sim_.wait(event);  // covers the first address's work, not the last access at the second
  sim_.unmap(range_.base, pages_);
  EXPECT_THAT(sim_.order_violations(), IsEmpty());
}

TEST_F(StreamOrder, AHandleIsFollowedAfterARemap) {
  sim_.access(first_, page_at(0), 4096, 1);
  sim_.wait(sim_.record(first_));
  sim_.access(first_, page_at(8192), 4096, 2);
  map_second_time();
  sim_.unmap(range_.base, pages_);  // block 2's work is not known to be done
  sim_.access(second_, page_at(4 * kMiB), 4096, 3);
  sim_.access(second_, page_at(4 * kMiB + 8192), 4096, 4);
  EXPECT_THAT(sim_.order_violations(),
              ElementsAre(HasSubstr("unmap in use"),
                          AllOf(HasSubstr("early reuse"), HasSubstr("for block 2"))));
}

TEST_F(StreamOrder, UnmapWithWorkInFlightIsCaughtHoweverItIsOrderedAmongStreams) {
  sim_.access(first_, page_at(0), 4096, 1);
  sim_.stream_wait(second_, sim_.record(first_));
  sim_.unmap(range_.base, pages_);
  EXPECT_THAT(sim_.order_violations(),
              ElementsAre(AllOf(HasSubstr("unmap in use"), HasSubstr("stream 0"))));
}

TEST_F(StreamOrder, UnmapOfSettledPagesIsLegal) {
  sim_.access(first_, page_at(0), 4096, 1);
  sim_.stream_wait(second_, sim_.record(first_));
  sim_.access(second_, page_at(0), 4096, 1);
  sim_.synchronize(second_);
  sim_.unmap(range_.base, pages_);
  EXPECT_THAT(sim_.order_violations(), IsEmpty());
}

TEST_F(StreamOrder, StrayAccessesAreCaught) {
  sim_.access(first_, page_at(2 * kMiB - 64), 128, 1);
  sim_.free_segment(segment_);
  sim_.access(first_, at(0), 64, 2);
  ASSERT_TRUE(sim_.map(range_.base + 4 * kMiB, pages_));
  sim_.access(first_, page_at(4 * kMiB), 64, 3);
  sim_.access(first_, nullptr, 64, 4);
  EXPECT_THAT(sim_.order_violations(),
              ElementsAre(AllOf(HasSubstr("stray access"), HasSubstr("is not mapped")),
                          HasSubstr("for block 2, which is not mapped"),
                          HasSubstr("for block 3, which lacks set_access"),
                          HasSubstr("for block 4, which is not mapped")));
}

TEST_F(StreamOrder, FreeingASegmentWaitsAndSoOrdersEverything) {
  sim_.access(first_, page_at(0), 4096, 1);
  sim_.access(first_, at(0), 4096, 2);
  sim_.free_segment(segment_);
  sim_.access(second_, page_at(0), 4096, 3);
  EXPECT_THAT(sim_.order_violations(), IsEmpty());
}

TEST_F(StreamOrder, MustBeAskedFor) {
  SimBackend plain;
  EXPECT_THROW(plain.access(Stream{plain.device(), 0}, nullptr, 1, 1), InvalidArgument);
  EXPECT_THROW(plain.order_violations(), InvalidArgument);
}

// A slow model of rule 1: every access is kept for every byte, with its own reachability set.
class ReuseModel {
 public:
  static constexpr int kStreams = 4;
  static constexpr int kBytes = 24;

  // True when the access is legal.
  bool access(int stream, int begin, int end, std::uint64_t owner) {
    bool legal = true;
    const std::size_t id = accesses_.size();
    for (int byte = begin; byte < end; ++byte) {
      for (const std::size_t earlier : by_byte_[byte])
        legal = legal && (accesses_[earlier] == owner || contains(known_[stream], earlier) ||
                          contains(host_, earlier));
      by_byte_[byte].push_back(id);
    }
    accesses_.push_back(owner);
    join(known_[stream], host_);
    known_[stream].resize(id + 1);
    known_[stream][id] = true;
    return legal;
  }
  std::vector<bool> snapshot(int stream) const { return known_[stream]; }
  void stream_wait(int stream, const std::vector<bool>& event) { join(known_[stream], event); }
  void host_wait(const std::vector<bool>& event) { join(host_, event); }

 private:
  static bool contains(const std::vector<bool>& set, std::size_t id) {
    return id < set.size() && set[id];
  }
  static void join(std::vector<bool>& into, const std::vector<bool>& from) {
    if (into.size() < from.size()) into.resize(from.size());
    for (std::size_t i = 0; i < from.size(); ++i)
      if (from[i]) into[i] = true;
  }

  std::vector<std::uint64_t> accesses_;  // owners
  std::vector<std::size_t> by_byte_[kBytes];
  std::vector<bool> known_[kStreams];
  std::vector<bool> host_;
};

TEST(OrderChecker, AgreesWithASlowModelOnRandomSchedules) {
  int illegal = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    SimBackend sim({.lag_ns = 1000, .check_order = true});
    for (int i = 1; i < ReuseModel::kStreams; ++i) sim.create_stream();
    const Segment segment = *sim.allocate_segment(ReuseModel::kBytes);
    ReuseModel model;
    std::uint64_t owner = 1;
    std::size_t reported = 0;
    for (int step = 0; step < 60; ++step) {
      const int id = static_cast<int>(random.below(ReuseModel::kStreams));
      const Stream stream{sim.device(), static_cast<std::uint32_t>(id)};
      const std::uint64_t action = random.below(8);
      if (action < 4) {
        const int begin = static_cast<int>(random.below(ReuseModel::kBytes));
        const int end = static_cast<int>(random.between(begin + 1, ReuseModel::kBytes));
        if (random.chance(0.5)) owner = random.between(1, 5);
        const bool legal = model.access(id, begin, end, owner);
        illegal += legal ? 0 : 1;
        sim.access(stream, static_cast<char*>(segment.base) + begin, end - begin, owner);
        const std::size_t now = sim.order_violations().size();
        ASSERT_EQ(legal, now == reported) << "step " << step;
        reported = now;
        if (now >= OrderChecker::kMaxViolations / 2) break;  // keep clear of the cap
      } else if (action < 7) {
        const Stream other{sim.device(),
                           static_cast<std::uint32_t>(random.below(ReuseModel::kStreams))};
        sim.stream_wait(other, sim.record(stream));
        model.stream_wait(static_cast<int>(other.id), model.snapshot(id));
      } else {
        sim.wait(sim.record(stream));
        model.host_wait(model.snapshot(id));
      }
    }
  }
  EXPECT_GT(illegal, 400) << "the schedules must exercise both outcomes";
}

}  // namespace
}  // namespace tenon
