#include "tenon/lab/planning/pq_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "tenon/base/random.h"

namespace tenon {
namespace {

using Items = PqTree::Items;
using Orders = std::set<Items>;

constexpr std::size_t kMostItems = 64;

PqTree::Marks marks_of(const Items& items) {
  PqTree::Marks marks(kMostItems);
  marks.set(items);
  return marks;
}

bool is_in(const Items& items, std::uint32_t item) {
  return std::find(items.begin(), items.end(), item) != items.end();
}

// Where the items begin in the order; none where they do not lie together.
std::optional<std::size_t> place_together(const Items& order, const Items& items) {
  for (std::size_t at = 0; at + items.size() <= order.size(); ++at)
    if (std::all_of(order.begin() + static_cast<std::ptrdiff_t>(at),
                    order.begin() + static_cast<std::ptrdiff_t>(at + items.size()),
                    [&](std::uint32_t item) { return is_in(items, item); }))
      return at;
  return std::nullopt;
}

// By trying all: what PqTree::exchange describes.
Orders exchanged(const Orders& orders, const Items& out, Items in) {
  Orders result;
  for (const Items& order : orders) {
    const auto at = place_together(order, out);
    if (!at) continue;
    std::sort(in.begin(), in.end());
    do {
      Items next = order;
      const auto begin = next.begin() + static_cast<std::ptrdiff_t>(*at);
      const auto after = next.erase(begin, begin + static_cast<std::ptrdiff_t>(out.size()));
      next.insert(after, in.begin(), in.end());
      result.insert(std::move(next));
    } while (std::next_permutation(in.begin(), in.end()));
  }
  return result;
}

bool always_together(const Orders& orders, const Items& items) {
  return std::all_of(orders.begin(), orders.end(),
                     [&](const Items& order) { return place_together(order, items).has_value(); });
}

Items some_of(Random& random, const Items& items) {
  Items chosen;
  while (chosen.empty())
    for (const std::uint32_t item : items)
      if (random.chance(0.4)) chosen.push_back(item);
  return chosen;
}

// Every item in one group; each group together in all orders, and no two of them.
void expect_groups(const PqTree& tree, const Items& marked, const Orders& orders) {
  const std::vector<Items> groups = tree.groups(marks_of(marked));
  Items all;
  for (const Items& group : groups) {
    all.insert(all.end(), group.begin(), group.end());
    EXPECT_TRUE(always_together(orders, group));
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, marked);
  for (std::size_t i = 0; i < groups.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      Items both = groups[i];
      both.insert(both.end(), groups[j].begin(), groups[j].end());
      EXPECT_FALSE(always_together(orders, both));
    }
}

TEST(PqTree, HasExactlyTheOrdersThatTryingAllFinds) {
  Random random(1);
  int refused = 0;
  for (int run = 0; run < 300; ++run) {
    Items items(6);
    std::iota(items.begin(), items.end(), 0);
    Orders orders;
    do orders.insert(items);
    while (std::next_permutation(items.begin(), items.end()));
    std::iota(items.begin(), items.end(), 0);
    PqTree tree(items);
    for (std::uint32_t next = 6; next < 24 && items.size() > 1;) {
      SCOPED_TRACE(::testing::Message() << "run " << run << ", item " << next);
      const Items out = some_of(random, items);
      Items in;
      const std::size_t most = 1 + 7 - std::min<std::size_t>(7, items.size() - out.size() + 1);
      for (std::size_t i = random.between(1, std::min<std::size_t>(most, 3)); i-- > 0;)
        in.push_back(next++);
      expect_groups(tree, out, orders);
      const Orders after = exchanged(orders, out, in);
      PqTree changed = tree;
      const auto exchange = changed.exchange(marks_of(out), in);
      ASSERT_EQ(exchange.has_value(), !after.empty());
      if (!exchange) {
        ++refused;
        continue;
      }
      Items order = changed.order();
      ASSERT_TRUE(after.contains(order));
      // Any order that is left, not only the tree's own, goes back to one that was there.
      for (const Items& one : after) {
        Items before = one;
        PqTree::undo(*exchange, before);
        ASSERT_TRUE(orders.contains(before));
      }
      tree = std::move(changed);
      orders = after;
      std::erase_if(items, [&](std::uint32_t item) { return is_in(out, item); });
      items.insert(items.end(), in.begin(), in.end());
      std::sort(items.begin(), items.end());
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace tenon
