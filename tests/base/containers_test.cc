// The slab of nodes, the map from bare pointers, the set of small numbers.
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <set>
#include <unordered_map>
#include <vector>

#include "tenon/base/ordered_bits.h"
#include "tenon/base/pointer_map.h"
#include "tenon/base/random.h"
#include "tenon/base/slab.h"

namespace tenon {
namespace {

struct Node {
  std::uint64_t number = 0;
  double weight = 1.5;
};

const void* key(std::uint64_t number) { return reinterpret_cast<const void*>(number); }

TEST(Slab, HandsOutDistinctInitialisedNodes) {
  Slab<Node, 4> slab;
  std::vector<Node*> nodes;
  for (std::uint64_t i = 0; i < 100; ++i) nodes.push_back(slab.create(i));
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(nodes[i]->number, i) << "nodes never move and never overlap";
    EXPECT_EQ(nodes[i]->weight, 1.5);
  }
}

TEST(Slab, ReusesTheNodeFreedLastAndStartsItAnew) {
  Slab<Node> slab;
  Node* first = slab.create(std::uint64_t{1}, 2.0);
  Node* second = slab.create(std::uint64_t{2});
  slab.destroy(first);
  slab.destroy(second);
  EXPECT_EQ(slab.create(), second);
  Node* again = slab.create();
  EXPECT_EQ(again, first);
  EXPECT_EQ(again->number, 0u);
  EXPECT_EQ(again->weight, 1.5);
}

TEST(Slab, DoesNotGrowOnceWarm) {
  Slab<Node, 16> slab;
  EXPECT_EQ(slab.capacity_bytes(), 0u);
  std::vector<Node*> nodes;
  for (int i = 0; i < 64; ++i) nodes.push_back(slab.create());
  const std::size_t warm_bytes = slab.capacity_bytes();
  EXPECT_EQ(warm_bytes, 64 * sizeof(Node));
  for (int round = 0; round < 100; ++round) {
    for (Node*& node : nodes) slab.destroy(node);
    for (Node*& node : nodes) node = slab.create();
  }
  EXPECT_EQ(slab.capacity_bytes(), warm_bytes);
}

TEST(Slab, AsksForNothingBeforeWhatItGrewToIsUsedUp) {
  Slab<Node, 4> slab;
  slab.create();
  slab.grow_to(1000);
  const std::size_t reserved_bytes = slab.capacity_bytes();
  EXPECT_EQ(slab.capacity(), 1000u);
  for (int i = 1; i < 999; ++i) slab.create();
  EXPECT_TRUE(slab.has(1));
  EXPECT_FALSE(slab.has(2));
  slab.create();
  EXPECT_EQ(slab.capacity_bytes(), reserved_bytes);
  EXPECT_TRUE(slab.is_full());
  EXPECT_EQ(slab.next_capacity(), 2000u);
  slab.create();
  EXPECT_EQ(slab.capacity(), 2000u);
}

TEST(Slab, NodesSmallerThanAPointerFit) {
  Slab<char, 8> slab;
  std::vector<char*> letters;
  for (char c = 'a'; c <= 'z'; ++c) letters.push_back(slab.create(c));
  for (int i = 0; i < 26; ++i) EXPECT_EQ(*letters[i], 'a' + i);
}

TEST(PointerMap, FindsAndTakes) {
  PointerMap<int> map;
  int one = 1;
  int two = 2;
  EXPECT_EQ(map.find(key(8)), nullptr) << "empty";
  EXPECT_EQ(map.take(key(8)), nullptr);
  map.insert(key(8), &one);
  map.insert(key(16), &two);
  EXPECT_EQ(map.find(key(8)), &one);
  EXPECT_EQ(map.find(nullptr), nullptr);
  EXPECT_EQ(map.take(nullptr), nullptr);
  EXPECT_EQ(map.take(key(8)), &one);
  EXPECT_EQ(map.take(key(8)), nullptr);
  EXPECT_EQ(map.find(key(16)), &two);
  EXPECT_EQ(map.size(), 1u);
  map.clear();
  EXPECT_EQ(map.find(key(16)), nullptr);
  map.insert(key(16), &two);
  EXPECT_EQ(map.find(key(16)), &two);
}

TEST(PointerMap, AgreesWithTheStandardMapUnderRandomCalls) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    PointerMap<Node> map;
    std::unordered_map<const void*, Node*> model;
    std::vector<Node> nodes(1000);
    const std::uint64_t keys = random.between(2, 600);  // few keys: long clusters, many reuses
    for (int step = 0; step < 5000; ++step) {
      const std::uint64_t number = random.between(1, keys);
      const void* k = key(number * (seed % 2 == 0 ? 512 : 1));
      const auto known = model.find(k);
      Node* expected = known == model.end() ? nullptr : known->second;
      ASSERT_EQ(map.find(k), expected);
      if (random.chance(0.5)) {
        ASSERT_EQ(map.take(k), expected);
        model.erase(k);
      } else if (expected == nullptr) {
        map.insert(k, &nodes[number]);
        model[k] = &nodes[number];
      }
      ASSERT_EQ(map.size(), model.size());
    }
    std::unordered_map<const void*, Node*> visited;
    map.for_each([&](const void* k, Node* node) { EXPECT_TRUE(visited.emplace(k, node).second); });
    EXPECT_EQ(visited, model);
  }
}

TEST(PointerMap, KeepsToItsMemoryBudget) {
  PointerMap<Node> map;
  Node node;
  for (std::uint64_t i = 1; i <= 100000; ++i) {
    map.insert(key(i * 64), &node);
    if (i >= 16) {
      ASSERT_LE(map.memory_bytes(), 64 * i);
    }
  }
  for (int round = 0; round < 3; ++round) {  // no tombstones: it does not grow with time
    const std::size_t before = map.memory_bytes();
    for (std::uint64_t i = 1; i <= 100000; ++i) ASSERT_EQ(map.take(key(i * 64)), &node);
    for (std::uint64_t i = 1; i <= 100000; ++i) map.insert(key(i * 64), &node);
    EXPECT_EQ(map.memory_bytes(), before);
  }
}

TEST(OrderedBits, FindsNeighboursAsTheStandardSetDoes) {
  for (const std::size_t size : {1u, 63u, 64u, 65u, 4096u, 4097u, 300000u}) {
    Random random(size);
    OrderedBits bits(size);
    std::set<std::size_t> members;
    for (int step = 0; step < 4000; ++step) {
      const std::size_t i = random.below(size);
      if (random.chance(0.5)) {
        bits.insert(i);
        members.insert(i);
      } else if (!members.empty()) {
        const std::size_t gone = random.chance(0.5) ? *members.begin() : i;
        bits.erase(gone);
        members.erase(gone);
      }
      const std::size_t at = random.below(size);
      const auto next = members.upper_bound(at);
      ASSERT_EQ(bits.contains(at), members.contains(at));
      ASSERT_EQ(bits.above(at), next == members.end() ? OrderedBits::kNone : *next);
      ASSERT_EQ(bits.at_most(at), next == members.begin() ? OrderedBits::kNone : *std::prev(next))
          << "of " << size;
    }
  }
}

}  // namespace
}  // namespace tenon
