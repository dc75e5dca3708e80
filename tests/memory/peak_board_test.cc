#include "tenon/memory/front/peak_board.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <thread>

#include "tenon/base/random.h"

namespace tenon {
namespace {

constexpr std::size_t kStreams = 3;

// What a stream of `bytes` in one block publishes.
PeakBoard::Levels levels_of(std::int64_t bytes) { return {1, bytes, 1, bytes, bytes / 2}; }

class PeakBoardTest : public ::testing::Test {
 protected:
  // As a heap: it joins, and gives the board its peaks.
  struct Counters {
    PeakBoard::Share share;
    std::int64_t bytes = 0;
    PeakBoard::Levels peaks() const { return levels_of(bytes); }
    void join(PeakBoard* board) {
      board->add(share);
      board->publish(share, levels_of(bytes));
    }
  };

  PeakBoardTest() {
    for (Counters& made : counters_)
      board_.add(made, [&](auto&& join) { join(counters_[0]); });
  }
  // The stream's bytes change, and are published where they have drifted so far.
  void set(std::size_t stream, std::int64_t bytes) {
    Counters& own = counters_[stream];
    own.bytes = bytes;
    if (std::abs(bytes - own.share.level(PeakBoard::kBytes)) >= PeakBoard::kDriftBytes)
      board_.publish(own.share, levels_of(bytes));
  }
  std::int64_t total() const {
    std::int64_t sum = 0;
    for (const Counters& own : counters_) sum += own.bytes;
    return sum;
  }
  std::int64_t peak() const {
    AllocatorStats stats;
    board_.set_peaks(stats);
    return stats.allocated_bytes[0].peak;
  }

  PeakBoard board_;
  std::array<Counters, kStreams> counters_;
};

TEST_F(PeakBoardTest, IsOffByAtMostTheDriftOfEachStream) {
  constexpr auto kMostOff = static_cast<std::int64_t>(kStreams) * PeakBoard::kDriftBytes;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::int64_t highest = total();
    const std::uint64_t step = std::uint64_t{1} << random.between(16, 23);
    for (int i = 0; i < 2000; ++i) {
      const std::size_t stream = random.below(kStreams);
      const auto change = static_cast<std::int64_t>(random.below(2 * step));
      const std::int64_t bytes = counters_[stream].bytes + change - static_cast<std::int64_t>(step);
      set(stream, std::clamp<std::int64_t>(bytes, 0, 32 << 20));
      highest = std::max(highest, total());
      ASSERT_LE(highest - peak(), kMostOff);
      ASSERT_LE(peak() - highest, kMostOff);
    }
    for (std::size_t stream = 0; stream < kStreams; ++stream)
      board_.publish(counters_[stream].share, levels_of(counters_[stream].bytes));
    board_.reset_peaks();
    ASSERT_EQ(peak(), total());
  }
}

TEST_F(PeakBoardTest, StreamsThatPeakInTurnAreNotAddedUp) {
  constexpr std::int64_t kBytes = 100 << 20;
  for (int round = 0; round < 3; ++round)
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      set(stream, kBytes);
      set(stream, 0);
    }
  EXPECT_EQ(peak(), kBytes);
  set(0, kBytes);
  set(1, kBytes);
  EXPECT_EQ(peak(), 2 * kBytes);
}

TEST_F(PeakBoardTest, ThreadsAtOnceMissNoPeak) {
  constexpr std::int64_t kBytes = 100 << 20;
  std::array<std::thread, kStreams> threads;
  for (std::size_t stream = 0; stream < kStreams; ++stream)
    threads[stream] = std::thread([this, stream] {
      for (int round = 0; round < 1000; ++round) {
        set(stream, kBytes / 2);
        set(stream, 0);
      }
      set(stream, kBytes);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(peak(), static_cast<std::int64_t>(kStreams) * kBytes);
}

}  // namespace
}  // namespace tenon
