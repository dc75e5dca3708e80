// All orders in which requests can lie above each other.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace tenon {

// A PQ-tree (Booth, Lueker, "Testing for the consecutive ones property using PQ-tree algorithms",
// 1976). Its leaves are items. The children of a P-node may stand in any order, those of a Q-node
// in the order given or its reverse. When some items are brought together, exactly the orders
// remain that have them together. Nodes are immutable, and copies share them. Each operation is
// O(items x depth).
class PqTree {
 public:
  struct Node;
  using Link = std::shared_ptr<const Node>;
  using Items = std::vector<std::uint32_t>;
  using Marks = std::vector<char>;  // by item

  // What exchange() took out, to put it back into an order of the new tree.
  struct Exchange {
    std::vector<Link> out;  // from the lowest up, where `beside` lies below; else from the highest
    Items in;
    std::optional<std::uint32_t> beside;  // none: `out` may stand either way
  };

  // In any order. Requires: not empty.
  explicit PqTree(const Items& items);

  // The marked items, in groups that lie together in all orders.
  std::vector<Items> groups(const Marks& marked) const;

  // The orders in which the marked items lie together, with `in` in their place, in any order. Null
  // where there is none: the tree is as before.
  std::optional<Exchange> exchange(const Marks& marked, const Items& in);

  // One of the orders.
  Items order() const;

  // An order of the tree after exchange() becomes one of the tree before it.
  static void undo(const Exchange& exchange, Items& order);

 private:
  Link root_;
};

}  // namespace tenon
