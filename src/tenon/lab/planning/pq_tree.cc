#include "tenon/lab/planning/pq_tree.h"

#include <algorithm>
#include <utility>

namespace tenon {

struct PqTree::Node {
  explicit Node(std::uint32_t leaf) : item(leaf), filter(Marks::filter_of(leaf)) {}
  Node(bool ordered, std::vector<Link>&& below) : is_ordered(ordered), children(std::move(below)) {
    for (const Link& child : children) filter |= child->filter;
  }

  bool is_ordered = false;   // a Q-node
  std::uint32_t item = 0;    // of a leaf
  std::uint64_t filter = 0;  // of its items
  std::vector<Link> children;

  bool is_leaf() const { return children.empty(); }
};

namespace {

using Link = PqTree::Link;
using Links = std::vector<Link>;
using Items = PqTree::Items;
using Marks = PqTree::Marks;

enum class Marked { kNone, kSome, kAll };

Link leaf(std::uint32_t item) {
  return std::make_shared<const PqTree::Node>(item);
}

// One node of those children, or the only one itself.
Link node_of(Links children, bool is_ordered) {
  if (children.size() == 1) return std::move(children[0]);
  return std::make_shared<const PqTree::Node>(is_ordered, std::move(children));
}

Link any_order_of(const Items& items) {
  Links leaves;
  for (const std::uint32_t item : items) leaves.push_back(leaf(item));
  return node_of(std::move(leaves), false);
}

Marked marked_of(const PqTree::Node& node, const Marks& marks) {
  if (marks.has_none_of(node.filter)) return Marked::kNone;
  if (node.is_leaf()) return marks.has(node.item) ? Marked::kAll : Marked::kNone;
  bool any = false, all = true;
  for (const Link& child : node.children) {
    const Marked of_child = marked_of(*child, marks);
    any |= of_child != Marked::kNone;
    all &= of_child == Marked::kAll;
    if (any && !all) return Marked::kSome;
  }
  return all ? Marked::kAll : Marked::kNone;
}

void append(Links& to, const Links& from) { to.insert(to.end(), from.begin(), from.end()); }

void add_items(const PqTree::Node& node, Items& items) {
  if (node.is_leaf()) items.push_back(node.item);
  for (const Link& child : node.children) add_items(*child, items);
}

std::uint32_t some_item(const Link& node) {
  const PqTree::Node* at = node.get();
  while (!at->is_leaf()) at = at->children[0].get();
  return at->item;
}

// A node with its marked items at one end: first what has none, then what is marked.
struct Halves {
  Links none, all;

  void reverse() {
    std::reverse(none.begin(), none.end());
    std::reverse(all.begin(), all.end());
  }
};

std::optional<Halves> halves_of(const Link& node, const Marks& marks);

// Children sorted by their marks, of a P-node.
struct Sorted {
  Sorted(const PqTree::Node& node, const Marks& marks) {
    for (const Link& child : node.children) {
      const Marked marked = marked_of(*child, marks);
      (marked == Marked::kNone ? none : marked == Marked::kAll ? all : some).push_back(child);
    }
  }
  Links none, some, all;
};

std::optional<Halves> halves_of_unordered(const PqTree::Node& node, const Marks& marks) {
  const Sorted sorted(node, marks);
  if (sorted.some.size() > 1) return std::nullopt;
  Halves halves;
  if (!sorted.none.empty()) halves.none.push_back(node_of(sorted.none, false));
  if (!sorted.some.empty()) {
    const auto inner = halves_of(sorted.some[0], marks);
    if (!inner) return std::nullopt;
    append(halves.none, inner->none);
    halves.all = inner->all;
  }
  if (!sorted.all.empty()) halves.all.push_back(node_of(sorted.all, false));
  return halves;
}

std::optional<Halves> halves_of_ordered(const PqTree::Node& node, const Marks& marks) {
  Links children = node.children;
  if (marked_of(*children.front(), marks) == Marked::kAll ||
      marked_of(*children.back(), marks) == Marked::kNone)
    std::reverse(children.begin(), children.end());
  Halves halves;
  for (const Link& child : children) {
    const Marked marked = marked_of(*child, marks);
    if (marked == Marked::kAll) {
      halves.all.push_back(child);
      continue;
    }
    if (!halves.all.empty()) return std::nullopt;
    if (marked == Marked::kNone) {
      halves.none.push_back(child);
      continue;
    }
    const auto inner = halves_of(child, marks);
    if (!inner) return std::nullopt;
    append(halves.none, inner->none);
    halves.all = inner->all;
  }
  return halves;
}

std::optional<Halves> halves_of(const Link& node, const Marks& marks) {
  switch (marked_of(*node, marks)) {
    case Marked::kNone: return Halves{{node}, {}};
    case Marked::kAll: return Halves{{}, {node}};
    case Marked::kSome: break;
  }
  return node->is_ordered ? halves_of_ordered(*node, marks) : halves_of_unordered(*node, marks);
}

// Replaces the marked items in a node that has them all.
class Exchanger {
 public:
  Exchanger(const Marks& marks, PqTree::Exchange& exchange)
      : marks_(marks), exchange_(exchange), in_(any_order_of(exchange.in)) {}

  Link replace(const Link& node) {  // null: they cannot lie together
    if (marked_of(*node, marks_) == Marked::kAll) {
      exchange_.out = {node};
      return in_;
    }
    const auto touched = [&](const Link& child) {
      return marked_of(*child, marks_) != Marked::kNone;
    };
    const auto& children = node->children;
    const auto first = std::find_if(children.begin(), children.end(), touched);
    const auto last = std::find_if(children.rbegin(), children.rend(), touched).base() - 1;
    if (first == last) {
      Links changed = children;
      Link& child = changed[static_cast<std::size_t>(first - children.begin())];
      child = replace(child);
      return child == nullptr ? nullptr : node_of(std::move(changed), node->is_ordered);
    }
    if (!node->is_ordered) return in_unordered(*node);
    for (auto inner = first + 1; inner != last; ++inner)
      if (marked_of(**inner, marks_) != Marked::kAll) return nullptr;
    return run(Links(children.begin(), first), *first, Links(first + 1, last), *last,
               Links(last + 1, children.end()));
  }

 private:
  Link in_unordered(const PqTree::Node& node) {
    Sorted sorted(node, marks_);
    if (sorted.some.size() > 2) return nullptr;
    if (sorted.some.empty()) {
      exchange_.out = sorted.all;
      sorted.none.push_back(in_);
      return node_of(std::move(sorted.none), false);
    }
    const Link right = sorted.some.size() == 2 ? sorted.some[1] : nullptr;
    Links middle;
    if (!sorted.all.empty()) middle.push_back(node_of(sorted.all, false));
    Link ordered = run({}, sorted.some[0], std::move(middle), right, {});
    if (ordered == nullptr) return nullptr;
    sorted.none.push_back(std::move(ordered));
    return node_of(std::move(sorted.none), false);
  }

  // `before`, the unmarked part of `left`, what comes in, the unmarked part of `right`, `after`.
  Link run(Links before, const Link& left, Links middle, const Link& right, const Links& after) {
    const auto low = halves_of(left, marks_);
    auto high = right == nullptr ? std::optional<Halves>(Halves{}) : halves_of(right, marks_);
    if (!low || !high) return nullptr;
    high->reverse();
    append(before, low->none);
    exchange_.out = low->all;
    append(exchange_.out, middle);
    append(exchange_.out, high->all);
    Links rest = high->none;
    append(rest, after);
    if (!before.empty()) {
      exchange_.beside = some_item(before[0]);
    } else if (!rest.empty()) {
      exchange_.beside = some_item(rest[0]);
      std::reverse(exchange_.out.begin(), exchange_.out.end());
    }
    before.push_back(in_);
    append(before, rest);
    return node_of(std::move(before), true);
  }

  const Marks& marks_;
  PqTree::Exchange& exchange_;
  const Link in_;
};

void add_groups(const Link& node, const Marks& marks, std::vector<Items>& groups) {
  switch (marked_of(*node, marks)) {
    case Marked::kNone: return;
    case Marked::kAll: return add_items(*node, groups.emplace_back());
    case Marked::kSome: break;
  }
  bool goes_on = false;  // a group of an ordered node
  for (const Link& child : node->children) {
    const bool is_all = marked_of(*child, marks) == Marked::kAll;
    if (is_all && goes_on)
      add_items(*child, groups.back());
    else
      add_groups(child, marks, groups);
    goes_on = is_all && node->is_ordered;
  }
}

}  // namespace

PqTree::PqTree(const Items& items) : root_(any_order_of(items)) {}

std::vector<Items> PqTree::groups(const Marks& marked) const {
  std::vector<Items> groups;
  add_groups(root_, marked, groups);
  return groups;
}

std::optional<PqTree::Exchange> PqTree::exchange(const Marks& marked, const Items& in) {
  Exchange exchange{{}, in, std::nullopt};
  Link changed = Exchanger(marked, exchange).replace(root_);
  if (changed == nullptr) return std::nullopt;
  root_ = std::move(changed);
  return exchange;
}

Items PqTree::order() const {
  Items items;
  add_items(*root_, items);
  return items;
}

void PqTree::undo(const Exchange& exchange, Items& order) {
  const auto at = std::find_first_of(order.begin(), order.end(), exchange.in.begin(),
                                     exchange.in.end());
  std::vector<Link> out = exchange.out;
  if (exchange.beside && std::find(order.begin(), at, *exchange.beside) == at)
    std::reverse(out.begin(), out.end());
  Items items;
  for (const Link& node : out) add_items(*node, items);
  const auto after = order.erase(at, at + static_cast<std::ptrdiff_t>(exchange.in.size()));
  order.insert(after, items.begin(), items.end());
}

}  // namespace tenon
