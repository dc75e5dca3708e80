#include "tenon/lab/view/display_space.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace tenon {
namespace {

// A line that grows at its end where no gap is large enough. O(log gaps) for each call.
class Room {
 public:
  // The smallest gap that is large enough, the lowest of equal ones; else the end.
  std::uint64_t take(std::uint64_t size_bytes) {
    const auto fit = by_size_.lower_bound({size_bytes, 0});
    if (fit != by_size_.end()) {
      const auto [gap_bytes, at] = *fit;
      by_size_.erase(fit);
      gaps_.erase(at);
      if (gap_bytes > size_bytes) add(at + size_bytes, gap_bytes - size_bytes);
      return at;
    }
    std::uint64_t at = end_;
    if (!gaps_.empty() && gaps_.rbegin()->first + gaps_.rbegin()->second == end_) {
      at = gaps_.rbegin()->first;
      remove(std::prev(gaps_.end()));
    }
    end_ = at + size_bytes;
    return at;
  }
  void give_back(std::uint64_t at, std::uint64_t size_bytes) {
    const auto next = gaps_.lower_bound(at);
    if (next != gaps_.end() && next->first == at + size_bytes) {
      size_bytes += next->second;
      remove(next);
    }
    const auto after = gaps_.lower_bound(at);
    if (after != gaps_.begin() && std::prev(after)->first + std::prev(after)->second == at) {
      at = std::prev(after)->first;
      size_bytes += std::prev(after)->second;
      remove(std::prev(after));
    }
    add(at, size_bytes);
  }
  std::uint64_t end() const { return end_; }

 private:
  void add(std::uint64_t at, std::uint64_t size_bytes) {
    gaps_.emplace(at, size_bytes);
    by_size_.emplace(size_bytes, at);
  }
  void remove(std::map<std::uint64_t, std::uint64_t>::iterator gap) {
    by_size_.erase({gap->second, gap->first});
    gaps_.erase(gap);
  }

  std::map<std::uint64_t, std::uint64_t> gaps_;                   // offset -> size
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;     // size, offset
  std::uint64_t end_ = 0;
};

}  // namespace

DisplaySpace::DisplaySpace(const std::vector<BackingChange>& changes) {
  join_touching(changes);
  find_lives(changes);
  place_all();
}

void DisplaySpace::join_touching(const std::vector<BackingChange>& changes) {
  struct Range {
    std::uint64_t address, end;
    bool page;
  };
  std::vector<Range> ranges;
  for (const BackingChange& change : changes)
    if (change.begins && change.size_bytes > 0)
      ranges.push_back({change.address, change.address + change.size_bytes, change.page});
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return a.address != b.address ? a.address < b.address : a.end < b.end;
  });
  bool page = false;
  for (const Range& range : ranges) {
    const std::uint64_t end =
        regions_.empty() ? 0 : regions_.back().address + regions_.back().size_bytes;
    const bool joins = !regions_.empty() && (range.address < end || (range.address == end && page &&
                                                                    range.page));
    if (joins) {
      regions_.back().size_bytes = std::max(end, range.end) - regions_.back().address;
    } else {
      regions_.push_back({range.address, range.end - range.address, kImmortal, kImmortal, 0});
    }
    page = range.page;
  }
}

void DisplaySpace::find_lives(const std::vector<BackingChange>& changes) {
  std::vector<std::uint64_t> backed(regions_.size());
  for (std::uint32_t i = 0; i < changes.size(); ++i) {
    if (changes[i].size_bytes == 0) continue;
    const std::size_t at = region_of(changes[i].address);
    if (at == regions_.size()) continue;
    Region& region = regions_[at];
    if (changes[i].begins) {
      region.born = std::min(region.born, i);
      region.dies = kImmortal;
      backed[at] += changes[i].size_bytes;
    } else {
      backed[at] -= changes[i].size_bytes;
      if (backed[at] == 0) region.dies = i;
    }
  }
}

void DisplaySpace::place_all() {
  std::vector<std::uint32_t> by_birth(regions_.size());
  std::iota(by_birth.begin(), by_birth.end(), 0u);
  std::sort(by_birth.begin(), by_birth.end(), [&](std::uint32_t a, std::uint32_t b) {
    return regions_[a].born < regions_[b].born;
  });
  Room room;
  std::multimap<std::uint32_t, const Region*> by_death;  // by the last change
  for (const std::uint32_t index : by_birth) {
    Region& region = regions_[index];
    while (!by_death.empty() && by_death.begin()->first < region.born) {
      const Region& gone = *by_death.begin()->second;
      room.give_back(gone.offset, gone.size_bytes);
      by_death.erase(by_death.begin());
    }
    region.offset = room.take(region.size_bytes);
    by_death.emplace(region.dies, &region);
  }
  size_bytes_ = room.end();
}

std::size_t DisplaySpace::region_of(std::uint64_t address) const {
  auto at = std::upper_bound(
      regions_.begin(), regions_.end(), address,
      [](std::uint64_t wanted, const Region& region) { return wanted < region.address; });
  if (at == regions_.begin()) return regions_.size();
  --at;
  return address - at->address < at->size_bytes ? static_cast<std::size_t>(at - regions_.begin())
                                                : regions_.size();
}

std::uint64_t DisplaySpace::offset_of(std::uint64_t address) const {
  const std::size_t at = region_of(address);
  return at == regions_.size() ? kNowhere
                               : regions_[at].offset + (address - regions_[at].address);
}

}  // namespace tenon
