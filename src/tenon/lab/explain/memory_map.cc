#include "tenon/lab/explain/memory_map.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "tenon/base/byte_size.h"

namespace tenon {
namespace {

constexpr std::uint64_t kMaxAddress = std::uint64_t{1} << 62;

// Ranges of addresses that are held, by start. What is undone may be a part of a range.
class Ranges {
 public:
  void add(SnapshotSegment range) {
    range.blocks.clear();
    if (range.total_bytes == 0 || !sane(range.address, range.total_bytes)) return;
    const std::uint64_t address = range.address;
    remove(address, range.total_bytes);  // ranges never overlap
    const auto [at, fresh] = ranges_.emplace(address, std::move(range));
    if (at->second.expandable) join(at);
  }

  void remove(std::uint64_t address, std::uint64_t size_bytes) {
    if (!sane(address, size_bytes)) return;
    const std::uint64_t end = address + size_bytes;
    auto at = ranges_.upper_bound(address);
    if (at != ranges_.begin() && end_of(std::prev(at)->second) > address) --at;
    while (at != ranges_.end() && at->first < end) {
      SnapshotSegment range = std::move(at->second);
      at = ranges_.erase(at);
      const std::uint64_t range_end = end_of(range);
      if (range_end > end) {
        SnapshotSegment rest = range;
        rest.address = end;
        rest.total_bytes = range_end - end;
        ranges_.emplace(end, std::move(rest));
      }
      if (range.address < address) {
        range.total_bytes = address - range.address;
        ranges_.emplace(range.address, std::move(range));
      }
    }
  }

  std::vector<SnapshotSegment> take() {
    std::vector<SnapshotSegment> all;
    for (auto& [address, range] : ranges_) all.push_back(std::move(range));
    return all;
  }

 private:
  using Map = std::map<std::uint64_t, SnapshotSegment>;
  // Sums of what a damaged file says must not wrap around.
  static bool sane(std::uint64_t address, std::uint64_t size_bytes) {
    return address < kMaxAddress && size_bytes < kMaxAddress;
  }
  static std::uint64_t end_of(const SnapshotSegment& range) {
    return range.address + range.total_bytes;
  }
  static bool joins(const SnapshotSegment& a, const SnapshotSegment& b) {
    return a.expandable && b.expandable && a.stream == b.stream && end_of(a) == b.address;
  }
  void join(Map::iterator at) {
    if (const auto next = std::next(at); next != ranges_.end() && joins(at->second, next->second)) {
      at->second.total_bytes += next->second.total_bytes;
      ranges_.erase(next);
    }
    if (at == ranges_.begin()) return;
    if (const auto before = std::prev(at); joins(before->second, at->second)) {
      before->second.total_bytes += at->second.total_bytes;
      ranges_.erase(at);
    }
  }

  Map ranges_;
};

void undo(const TraceMark& mark, const Trace& trace, Ranges& ranges) {
  switch (mark.kind) {
    case MarkKind::kSegmentAlloc:
    case MarkKind::kSegmentMap: ranges.remove(mark.address, mark.size_bytes); break;
    case MarkKind::kSegmentFree:
    case MarkKind::kSegmentUnmap: {
      SnapshotSegment range;
      range.address = mark.address;
      range.total_bytes = mark.size_bytes;
      range.stream = mark.stream;
      range.device = trace.device;
      range.expandable = mark.kind == MarkKind::kSegmentUnmap;
      range.small_pool = !range.expandable && mark.size_bytes == kSmallSegment;
      range.pool = "(0, 0)";
      ranges.add(std::move(range));
      break;
    }
    default: break;
  }
}

// What a block takes of the room up to its neighbour.
std::uint64_t placed_bytes(const SnapshotSegment& segment, std::uint64_t requested_bytes,
                           std::uint64_t room_bytes, const CachingSettings& settings) {
  if (requested_bytes >= room_bytes) return room_bytes;
  const std::uint64_t rounded = settings.round_size(requested_bytes);
  const CutRules rules = settings.cut_rules(segment.small_pool, segment.expandable);
  return rounded < room_bytes && rules.cuts(room_bytes, rounded) ? rounded : room_bytes;
}

// `live`: requested sizes, by address, inside the segment.
void tile(SnapshotSegment& segment, const std::vector<SnapshotBlock>& live,
          const CachingSettings& settings) {
  const std::uint64_t end = segment.address + segment.total_bytes;
  std::uint64_t at = segment.address;
  for (std::size_t i = 0; i < live.size(); ++i) {
    SnapshotBlock block = live[i];
    if (block.address < at) continue;  // addresses that overlap: the earlier one stands
    segment.add_free(at, block.address);
    const std::uint64_t next = i + 1 < live.size() ? std::min(end, live[i + 1].address) : end;
    block.size_bytes =
        placed_bytes(segment, block.requested_bytes, next - block.address, settings);
    at = block.address + block.size_bytes;
    segment.blocks.push_back(block);
  }
  segment.add_free(at, end);
}

}  // namespace

std::size_t marks_before(const Trace& trace, std::size_t events) {
  return static_cast<std::size_t>(
      std::lower_bound(trace.marks.begin(), trace.marks.end(), events,
                       [](const TraceMark& mark, std::size_t number) {
                         return mark.event < number;
                       }) -
      trace.marks.begin());
}

std::vector<SnapshotSegment> segments_of(const std::vector<SnapshotSegment>& all,
                                         std::uint32_t device) {
  std::vector<SnapshotSegment> own;
  std::copy_if(all.begin(), all.end(), std::back_inserter(own),
               [&](const SnapshotSegment& segment) { return segment.device == device; });
  std::sort(own.begin(), own.end(), [](const SnapshotSegment& a, const SnapshotSegment& b) {
    return a.address < b.address;
  });
  return own;
}

std::vector<SnapshotSegment> memory_map(const Trace& trace, const std::vector<Lifetime>& lives,
                                        const std::vector<SnapshotSegment>& end,
                                        std::size_t events, std::size_t marks,
                                        const CachingSettings& settings) {
  Ranges ranges;
  for (const SnapshotSegment& segment : segments_of(end, trace.device)) ranges.add(segment);
  for (std::size_t i = trace.marks.size(); i-- > marks;) undo(trace.marks[i], trace, ranges);
  std::vector<SnapshotSegment> segments = ranges.take();
  if (trace.addresses.empty()) return segments;

  std::vector<std::vector<SnapshotBlock>> live(segments.size());
  for (std::uint32_t number = 0; number < trace.blocks; ++number) {
    const Lifetime& life = lives[number];
    if (!life.live_after(events)) continue;
    SnapshotBlock block;
    block.address = trace.addresses[number];
    block.requested_bytes = life.size_bytes;
    block.site = life.site;
    block.state = life.requested < events ? BlockState::kPendingFree : BlockState::kAllocated;
    const auto after = std::upper_bound(
        segments.begin(), segments.end(), block.address,
        [](std::uint64_t address, const SnapshotSegment& s) { return address < s.address; });
    if (after == segments.begin()) continue;
    const auto home = static_cast<std::size_t>(after - segments.begin()) - 1;
    if (block.address < segments[home].address + segments[home].total_bytes)
      live[home].push_back(block);
  }
  for (std::size_t i = 0; i < segments.size(); ++i) {
    std::sort(live[i].begin(), live[i].end(), [](const SnapshotBlock& a, const SnapshotBlock& b) {
      return a.address < b.address;
    });
    tile(segments[i], live[i], settings);
  }
  return segments;
}

}  // namespace tenon
