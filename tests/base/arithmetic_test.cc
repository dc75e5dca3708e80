// Alignment, hashes and random numbers.
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "tenon/base/align.h"
#include "tenon/base/hash.h"
#include "tenon/base/random.h"

namespace tenon {
namespace {

TEST(Align, RoundsToPowersOfTwo) {
  EXPECT_EQ(align_up(0, 512), 0u);
  EXPECT_EQ(align_up(1, 512), 512u);
  EXPECT_EQ(align_up(512, 512), 512u);
  EXPECT_EQ(align_up(513, 512), 1024u);
  EXPECT_EQ(align_down(513, 512), 512u);
  EXPECT_EQ(align_down(511, 512), 0u);
  EXPECT_TRUE(is_aligned(4096, 4096));
  EXPECT_TRUE(is_aligned(0, 4096));
  EXPECT_FALSE(is_aligned(4095, 4096));
  EXPECT_EQ(align_up(kMaxRequestBytes, kMaxRequestBytes), kMaxRequestBytes);
}

TEST(Align, AgreesWithDivision) {
  Random random(2);
  for (int i = 0; i < 10000; ++i) {
    const std::uint64_t value = random.below(kMaxRequestBytes);
    const std::uint64_t alignment = std::uint64_t{1} << random.below(40);
    EXPECT_EQ(align_up(value, alignment), round_up(value, alignment));
    EXPECT_EQ(align_down(value, alignment), value / alignment * alignment);
    EXPECT_EQ(is_aligned(value, alignment), value % alignment == 0);
  }
}

TEST(Align, RoundsToAnyUnit) {
  EXPECT_EQ(round_up(0, 3), 0u);
  EXPECT_EQ(round_up(7, 3), 9u);
  EXPECT_EQ(round_up(9, 3), 9u);
  EXPECT_EQ(round_up(9, 1), 9u);
}

TEST(Align, KnowsPowersOfTwo) {
  EXPECT_FALSE(is_power_of_two(0));
  EXPECT_TRUE(is_power_of_two(1));
  EXPECT_FALSE(is_power_of_two(3));
  EXPECT_TRUE(is_power_of_two(std::uint64_t{1} << 63));
  EXPECT_FALSE(is_power_of_two(UINT64_MAX));
}

TEST(Hash, MixesWithoutCollisionsAndTheSameEverywhere) {
  static_assert(mix64(0) == 0);
  static_assert(mix64(1) == 0x5692161d100b05e5ULL);
  std::set<std::uint64_t> seen;
  for (std::uint64_t i = 0; i < 10000; ++i) seen.insert(mix64(i));
  EXPECT_EQ(seen.size(), 10000u);
}

TEST(Hash, RunningHashDependsOnOrderAndCount) {
  const auto hash = [](std::initializer_list<std::uint64_t> values) {
    RunningHash running;
    for (const std::uint64_t value : values) running.add(value);
    return running.value();
  };
  EXPECT_EQ(hash({1, 2, 3}), hash({1, 2, 3}));
  EXPECT_NE(hash({1, 2, 3}), hash({3, 2, 1}));
  EXPECT_NE(hash({0}), hash({0, 0}));
  EXPECT_NE(hash({}), hash({0}));
  EXPECT_EQ(hash({}), 0u);
}

TEST(Random, RepeatsByItsSeed) {
  Random a(7);
  Random b(7);
  Random c(8);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t next = a.next();
    EXPECT_EQ(next, b.next());
    differs = differs || next != c.next();
  }
  EXPECT_TRUE(differs);
}

TEST(Random, MatchesTheReferenceSplitMix64) {
  Random random(1234567);  // reference: Vigna's splitmix64.c, seed 1234567
  EXPECT_EQ(random.next(), 6457827717110365317ULL);
  EXPECT_EQ(random.next(), 3203168211198807973ULL);
  EXPECT_EQ(random.next(), 9817491932198370423ULL);
}

TEST(Random, StaysInItsRangeAndFillsIt) {
  Random random(3);
  std::array<int, 10> counts = {};
  for (int i = 0; i < 100000; ++i) ++counts[random.below(10)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t value = random.between(5, 7);
    EXPECT_TRUE(value >= 5 && value <= 7);
  }
  EXPECT_EQ(random.below(1), 0u);
  EXPECT_EQ(random.between(9, 9), 9u);
}

TEST(Random, ChancesComeOutAsOften) {
  Random random(4);
  int hits = 0;
  for (int i = 0; i < 100000; ++i) hits += random.chance(0.25) ? 1 : 0;
  EXPECT_NEAR(hits, 25000, 600);
  EXPECT_FALSE(random.chance(0));
  EXPECT_TRUE(random.chance(1));
}

}  // namespace
}  // namespace tenon
