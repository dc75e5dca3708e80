#include "tenon/heap/size_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <set>
#include <vector>

#include "tenon/base/random.h"

namespace tenon {
namespace {

using Key = std::pair<std::uint64_t, std::uint64_t>;  // size, offset

Key key_of(const Block* block) { return {block->size, block->offset}; }

// What std::set would answer.
struct Model {
  std::set<Key> keys;
  Key find(std::uint64_t size) const { return at(keys.lower_bound({size, 0})); }
  Key after(const Key& key) const { return at(keys.upper_bound(key)); }
  Key largest() const { return keys.empty() ? Key{0, 0} : *keys.rbegin(); }
  Key at(std::set<Key>::const_iterator it) const { return it == keys.end() ? Key{0, 0} : *it; }
};

Key key_or_none(const Block* block) { return block == nullptr ? Key{0, 0} : key_of(block); }

TEST(SizeIndexTest, AnEmptyIndexFindsNothing) {
  SizeIndex index;
  EXPECT_TRUE(index.empty());
  EXPECT_EQ(index.find(1), nullptr);
  EXPECT_EQ(index.largest(), nullptr);
  index.check_invariants();
}

TEST(SizeIndexTest, AgreesWithAnOrderedSetUnderRandomChanges) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Random random(seed);
    SizeIndex index;
    Model model;
    std::deque<Block> storage;
    std::vector<Block*> held;
    for (int step = 0; step < 3000; ++step) {
      if (held.empty() || random.chance(0.55)) {
        // Few distinct sizes on even seeds: many ties, deep trees in one bin.
        const std::uint64_t size = seed % 2 == 0 ? 512 * random.between(1, 4)
                                                 : 1 + random.below(1ull << random.between(1, 46));
        const std::uint64_t offset = random.below(1ull << 40) & ~511ull;
        if (!model.keys.insert({size, offset}).second) continue;
        Block& block = storage.emplace_back();
        block.size = size;
        block.offset = offset;
        index.insert(&block);
        held.push_back(&block);
      } else {
        const std::size_t pick = random.below(held.size());
        index.erase(held[pick]);
        model.keys.erase(key_of(held[pick]));
        held[pick] = held.back();
        held.pop_back();
      }
      const std::uint64_t probe = 1 + random.below(1ull << random.between(1, 47));
      ASSERT_EQ(key_or_none(index.find(probe)), model.find(probe));
      ASSERT_EQ(key_or_none(index.largest()), model.largest());
      if (!held.empty()) {
        const Block* from = held[random.below(held.size())];
        ASSERT_EQ(key_or_none(index.after(from)), model.after(key_of(from)));
      }
      if (step % 50 == 0) index.check_invariants();
    }
    const std::uint64_t least = 1 + random.below(1ull << random.between(1, 46));
    std::vector<Key> fitting;
    index.for_each_from(least, [&](const Block* block) {
      fitting.push_back(key_of(block));
      return fitting.size() < 20;
    });
    std::vector<Key> expected(model.keys.lower_bound({least, 0}), model.keys.end());
    expected.resize(std::min<std::size_t>(expected.size(), 20));
    EXPECT_EQ(fitting, expected);
    std::vector<Key> order;
    index.for_each([&](const Block* block) { order.push_back(key_of(block)); });
    EXPECT_EQ(order, std::vector<Key>(model.keys.begin(), model.keys.end()));
  }
}

TEST(SizeIndexTest, SizesAtTheBordersOfBinsAreFoundExactly) {
  SizeIndex index;
  std::deque<Block> storage;
  Model model;
  for (int power = 0; power < 62; ++power)
    for (const std::int64_t delta : {-1, 0, 1}) {
      const std::uint64_t size = (std::uint64_t{1} << power) + static_cast<std::uint64_t>(delta);
      if (size == 0 || !model.keys.insert({size, 64}).second) continue;
      Block& block = storage.emplace_back();
      block.size = size;
      block.offset = 64;
      index.insert(&block);
    }
  index.check_invariants();
  for (const Key& key : model.keys)
    for (const std::uint64_t probe : {key.first - 1, key.first, key.first + 1}) {
      if (probe == 0) continue;
      EXPECT_EQ(key_or_none(index.find(probe)), model.find(probe)) << probe;
    }
}

// Offsets in arithmetic progression are what allocators see, and the worst that a weak hash could
// be given: the way to each of many blocks must stay short.
TEST(SizeIndexTest, EqualBlocksAtRegularOffsetsStayInAShallowTree) {
  constexpr std::size_t kBlocks = 1 << 15;
  std::vector<Block> storage(kBlocks);
  for (const std::uint64_t stride :
       {64ull, 512ull, 1536ull, 4096ull, 10240ull, 65536ull, 1ull << 20, 2ull << 20, 3ull << 20,
        20ull << 20, 1ull << 30}) {
    SizeIndex index;
    for (std::size_t i = 0; i < kBlocks; ++i) {
      storage[i] = Block{};
      storage[i].size = 512;
      storage[i].offset = (1ull << 45) - (i + 1) * stride;
      index.insert(&storage[i]);
      // A treap becomes another tree before it is deep; that one has few levels.
      if (i < 1024) {
        ASSERT_LE(index.depth(), 30) << "stride " << stride;
      }
    }
    EXPECT_LE(index.depth(), 6) << "stride " << stride;
    index.check_invariants();
  }
}

// A bin that fills up and empties goes through all its forms, and its nodes split and join.
TEST(SizeIndexTest, ACrowdedBinAgreesWithAnOrderedSetAsItGrowsAndShrinks) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Random random(seed);
    SizeIndex index;
    Model model;
    std::deque<Block> storage;
    std::vector<Block*> held;
    for (int step = 0; step < 40000; ++step) {
      // Up to thousands and down to none, twice; half of the seeds in ascending order.
      const bool grows = step % 20000 < 10000;
      if (held.empty() || random.chance(grows ? 0.9 : 0.1)) {
        const std::uint64_t size = 4096 + random.below(seed % 3 == 0 ? 1 : 64);
        const std::uint64_t offset =
            seed % 2 == 0 ? 8192ull * static_cast<std::uint64_t>(step) : random.below(1ull << 40);
        if (!model.keys.insert({size, offset}).second) continue;
        Block& block = storage.emplace_back();
        block.size = size;
        block.offset = offset;
        index.insert(&block);
        held.push_back(&block);
      } else {
        // From either end of the held ones, or anywhere.
        const std::size_t pick = seed < 3 ? held.size() - 1 : random.below(held.size());
        index.erase(held[pick]);
        model.keys.erase(key_of(held[pick]));
        held[pick] = held.back();
        held.pop_back();
      }
      const std::uint64_t probe = 4090 + random.below(80);
      ASSERT_EQ(key_or_none(index.find(probe)), model.find(probe));
      ASSERT_EQ(key_or_none(index.largest()), model.largest());
      if (!held.empty()) {
        const Block* from = held[random.below(held.size())];
        ASSERT_EQ(key_or_none(index.after(from)), model.after(key_of(from)));
      }
      if (step % 500 == 0) index.check_invariants();
    }
    std::vector<Key> order;
    index.for_each([&](const Block* block) { order.push_back(key_of(block)); });
    EXPECT_EQ(order, std::vector<Key>(model.keys.begin(), model.keys.end()));
  }
}

}  // namespace
}  // namespace tenon
