// Which offsets are taken at which times: what the planner asks at every step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tenon {

// A block that has its place: [offset, top) in memory and [begin, end) in time.
struct PackedBlock {
  std::uint64_t offset = 0;
  std::uint64_t top = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

// Offsets that are taken: disjoint ranges in order. Ranges that touch are joined, so a set stays as
// small as the number of gaps in it.
class TakenOffsets {
 public:
  struct Range {
    std::uint64_t offset = 0;
    std::uint64_t top = 0;
  };

  void add(std::uint64_t offset, std::uint64_t top) {
    // The first range that touches or lies above.
    auto at = std::lower_bound(ranges_.begin(), ranges_.end(), offset,
                               [](const Range& r, std::uint64_t low) { return r.top < low; });
    if (at == ranges_.end() || top < at->offset) {
      ranges_.insert(at, {offset, top});
      return;
    }
    at->offset = std::min(at->offset, offset);
    at->top = std::max(at->top, top);
    auto next = at + 1;
    while (next != ranges_.end() && next->offset <= at->top) ++next;
    at->top = std::max(at->top, (next - 1)->top);
    ranges_.erase(at + 1, next);
  }

  const Range* begin() const { return ranges_.data(); }
  const Range* end() const { return ranges_.data() + ranges_.size(); }

 private:
  std::vector<Range> ranges_;
};

// Placed blocks in a tree over time. A node stands for a stretch of time and has two sets: what is
// taken during all of it, by blocks that were placed at this node, and what is taken at any time in
// it, by blocks placed at the node or below. A leaf is kLeaf moments wide; blocks that begin or end
// inside it are kept one by one. Whatever overlaps a life is in the second set of the nodes that
// make it up, in the first set of the nodes above these, or in the leaves at its two ends.
//
// insert and lowest_fit visit O(log duration) nodes; their time depends on the gaps in these nodes'
// sets, not on the number of blocks.
class PackedIndex {
 public:
  explicit PackedIndex(std::uint32_t duration) {
    leaves_ = 1;
    while (leaves_ * kLeaf < duration) leaves_ *= 2;
    always_.resize(2 * leaves_);
    ever_.resize(2 * leaves_);
    ends_.resize(leaves_);
  }

  // The lowest offset at which `size` bytes are free in all of [begin, end).
  std::uint64_t lowest_fit(std::uint64_t size, std::uint32_t begin, std::uint32_t end) {
    cursors_.clear();
    const std::size_t first = begin / kLeaf;
    const std::size_t last = (end - 1) / kLeaf;
    for_each_part(begin, end, [&](std::size_t node) { look_at(ever_[node]); });
    // Above both ends; the nodes in between lie under one of these, or are parts themselves.
    for (std::size_t node = first + leaves_; node > 0; node /= 2) look_at(always_[node]);
    for (std::size_t node = last + leaves_, other = first + leaves_; node != other;
         node /= 2, other /= 2)
      look_at(always_[node]);
    std::uint64_t low = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (Cursor& cursor : cursors_) moved |= climb(cursor, size, low);
      moved |= climb(ends_[first], size, begin, end, low);
      if (last != first) moved |= climb(ends_[last], size, begin, end, low);
    }
    return low;
  }

  void insert(const PackedBlock& block) {
    const std::size_t first = block.begin / kLeaf;
    const std::size_t last = (block.end - 1) / kLeaf;
    for_each_part(block.begin, block.end,
                  [&](std::size_t node) { always_[node].add(block.offset, block.top); });
    if (!covers(block.begin, block.end, first)) add_end(ends_[first], block);
    if (last != first && !covers(block.begin, block.end, last)) add_end(ends_[last], block);
    // Every part lies below the path from the first leaf or the one from the last, or beside it.
    for_each_part(block.begin, block.end,
                  [&](std::size_t node) { ever_[node].add(block.offset, block.top); });
    for (std::size_t node = first + leaves_; node > 0; node /= 2)
      ever_[node].add(block.offset, block.top);
    for (std::size_t node = last + leaves_, other = first + leaves_; node != other;
         node /= 2, other /= 2)
      ever_[node].add(block.offset, block.top);
  }

  // Ranges and blocks that searches have looked at: what their time grows with.
  std::uint64_t visited() const { return visited_; }

 private:
  static constexpr std::uint32_t kLeaf = 64;
  struct Cursor {
    const TakenOffsets::Range* at;
    const TakenOffsets::Range* end;
  };

  static bool covers(std::uint32_t begin, std::uint32_t end, std::size_t leaf) {
    return begin <= leaf * kLeaf && end >= (leaf + 1) * kLeaf;
  }

  // The largest nodes that lie wholly in [begin, end).
  template <typename Visit>
  void for_each_part(std::uint32_t begin, std::uint32_t end, Visit&& visit) const {
    std::size_t low = (begin + kLeaf - 1) / kLeaf + leaves_;
    std::size_t high = end / kLeaf + leaves_;
    for (; low < high; low /= 2, high /= 2) {
      if (low & 1) visit(low++);
      if (high & 1) visit(--high);
    }
  }

  static void add_end(std::vector<PackedBlock>& blocks, const PackedBlock& block) {
    blocks.insert(std::upper_bound(blocks.begin(), blocks.end(), block.offset,
                                   [](std::uint64_t offset, const PackedBlock& other) {
                                     return offset < other.offset;
                                   }),
                  block);
  }

  void look_at(const TakenOffsets& taken) {
    if (taken.begin() != taken.end()) cursors_.push_back({taken.begin(), taken.end()});
  }

  // Moves `low` above what stands in the way of [low, low + size); whether anything did.
  bool climb(Cursor& cursor, std::uint64_t size, std::uint64_t& low) {
    bool moved = false;
    ++visited_;
    for (; cursor.at != cursor.end && cursor.at->offset < low + size; ++cursor.at, ++visited_) {
      if (cursor.at->top <= low) continue;
      low = cursor.at->top;
      moved = true;
    }
    return moved;
  }
  bool climb(const std::vector<PackedBlock>& blocks, std::uint64_t size, std::uint32_t begin,
             std::uint32_t end, std::uint64_t& low) {
    bool moved = false;
    for (const PackedBlock& block : blocks) {
      ++visited_;
      if (block.offset >= low + size) break;
      if (block.top <= low || block.end <= begin || end <= block.begin) continue;
      low = block.top;
      moved = true;
    }
    return moved;
  }

  std::size_t leaves_ = 1;
  // By node: 1 is the root, 2n and 2n + 1 are the halves of n, leaves come last.
  std::vector<TakenOffsets> always_;
  std::vector<TakenOffsets> ever_;
  std::vector<std::vector<PackedBlock>> ends_;  // by leaf, by offset
  std::vector<Cursor> cursors_;                 // of the search in hand
  std::uint64_t visited_ = 0;
};

}  // namespace tenon
