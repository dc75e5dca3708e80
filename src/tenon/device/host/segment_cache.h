// Freed memory that is kept for a while, because the system charges more for fresh pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <map>
#include <optional>
#include <utility>

namespace tenon {

// Address ranges by size and by age. It owns none of the memory: whatever leaves is the caller's
// to release. Best fit with at most an eighth wasted; O(log n). Not thread-safe.
class SegmentCache {
 public:
  struct Range {
    void* base = nullptr;
    std::uint64_t size_bytes = 0;
  };

  // So many more ranges can be put in, which then allocates nothing. Throws std::bad_alloc.
  void reserve(std::size_t ranges) {
    while (spare_by_age_.size() < ranges) spare_by_age_.emplace_back();
    while (spare_by_size_.size() < ranges) spare_by_size_.emplace();
  }
  // Requires: room was reserved.
  void put(Range range, std::uint64_t now_ns) {
    by_age_.splice(by_age_.end(), spare_by_age_, spare_by_age_.begin());
    auto node = spare_by_size_.extract(spare_by_size_.begin());
    node.key() = range.size_bytes;
    node.mapped() = std::prev(by_age_.end());
    by_age_.back() = {range, now_ns, by_size_.insert(std::move(node))};
    size_bytes_ += range.size_bytes;
  }

  // The smallest range of at least, and not much more than, `size_bytes`.
  std::optional<Range> take(std::uint64_t size_bytes) {
    const auto it = by_size_.lower_bound(size_bytes);
    if (it == by_size_.end() || it->first - size_bytes > size_bytes / 8) return std::nullopt;
    return remove(it->second);
  }

  // The oldest range, if it was put in at or before `time_ns`.
  std::optional<Range> take_older_than(std::uint64_t time_ns) {
    if (by_age_.empty() || by_age_.front().freed_ns > time_ns) return std::nullopt;
    return remove(by_age_.begin());
  }

  std::uint64_t size_bytes() const { return size_bytes_; }

 private:
  struct Entry;
  using ByAge = std::list<Entry>;
  using BySize = std::multimap<std::uint64_t, ByAge::iterator>;
  struct Entry {
    Range range;
    std::uint64_t freed_ns;
    BySize::iterator by_size;
  };

  Range remove(ByAge::iterator entry) {
    const Range range = entry->range;
    spare_by_size_.insert(by_size_.extract(entry->by_size));
    spare_by_age_.splice(spare_by_age_.end(), by_age_, entry);
    size_bytes_ -= range.size_bytes;
    return range;
  }

  ByAge by_age_;  // oldest first
  BySize by_size_;
  ByAge spare_by_age_;
  BySize spare_by_size_;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace tenon
