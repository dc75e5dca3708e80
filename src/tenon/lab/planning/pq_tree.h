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

  // A set of items below a bound.
  class Marks {
   public:
    explicit Marks(std::size_t bound) : is_marked_(bound) {}
    void set(const Items& items) {
      for (const std::uint32_t item : items) {
        is_marked_[item] = 1;
        filter_ |= filter_of(item);
      }
    }
    void clear(const Items& items) {  // all that are set
      for (const std::uint32_t item : items) is_marked_[item] = 0;
      filter_ = 0;
    }
    bool has(std::uint32_t item) const { return is_marked_[item] != 0; }
    // None of the items that the filter was made of are marked.
    bool has_none_of(std::uint64_t filter) const { return (filter_ & filter) == 0; }
    // A Bloom filter of one bit for each item.
    static std::uint64_t filter_of(std::uint32_t item) { return std::uint64_t{1} << item % 64; }

   private:
    std::vector<char> is_marked_;
    std::uint64_t filter_ = 0;
  };

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
