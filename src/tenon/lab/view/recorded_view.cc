#include "tenon/lab/view/recorded_view.h"

#include <algorithm>
#include <functional>
#include <map>

#include "tenon/base/align.h"

namespace tenon {
namespace {

// Ranges of addresses with memory behind them. None overlap.
class HeldRanges {
 public:
  struct Range {
    std::uint64_t address = 0;
    std::uint64_t end = 0;
    bool page = false;
  };
  using Note = std::function<void(bool begins, const Range& range)>;

  explicit HeldRanges(Note note = [](bool, const Range&) {}) : note_(std::move(note)) {}

  // What of it is held already stays as it is.
  void add(Range range) {
    for (auto at = first_beyond(range.address); range.address < range.end;) {
      const bool meets = at != ranges_.end() && at->second.address < range.end;
      const std::uint64_t end = meets ? at->second.address : range.end;
      if (range.address < end) insert({range.address, end, range.page});
      if (!meets) return;
      range.address = std::max(range.address, at->second.end);
      ++at;
    }
  }
  // What of it is not held is ignored; a range of which a part goes leaves the rest behind.
  void remove(const Range& range) {
    for (auto at = first_beyond(range.address);
         at != ranges_.end() && at->second.address < range.end;) {
      const Range whole = at->second;
      at = ranges_.erase(at);
      bytes_ -= whole.end - whole.address;
      note_(false, whole);
      if (whole.address < range.address) insert({whole.address, range.address, whole.page});
      if (whole.end > range.end) insert({range.end, whole.end, whole.page});
    }
  }
  std::uint64_t bytes() const { return bytes_; }
  void for_each(const std::function<void(const Range&)>& visit) const {
    for (const auto& [address, range] : ranges_) visit(range);
  }

 private:
  // The first range that ends after the address.
  std::map<std::uint64_t, Range>::iterator first_beyond(std::uint64_t address) {
    auto at = ranges_.upper_bound(address);
    if (at != ranges_.begin() && std::prev(at)->second.end > address) --at;
    return at;
  }
  void insert(const Range& range) {
    ranges_[range.address] = range;
    bytes_ += range.end - range.address;
    note_(true, range);
  }

  Note note_;
  std::map<std::uint64_t, Range> ranges_;  // by address
  std::uint64_t bytes_ = 0;
};

// Nothing for a size that no memory has.
std::optional<HeldRanges::Range> range_of(std::uint64_t address, std::uint64_t size_bytes,
                                          bool page) {
  if (size_bytes == 0 || size_bytes > kMaxRequestBytes || address > UINT64_MAX - size_bytes)
    return std::nullopt;
  return HeldRanges::Range{address, address + size_bytes, page};
}
std::optional<HeldRanges::Range> range_of(const TraceMark& mark) {
  return range_of(mark.address, mark.size_bytes,
                  mark.kind == MarkKind::kSegmentMap || mark.kind == MarkKind::kSegmentUnmap);
}

HeldRanges held_at_start(const Trace& trace, const std::vector<SnapshotSegment>& segments) {
  HeldRanges held;
  for (const SnapshotSegment& segment : segments)
    if (segment.device == trace.device)
      if (const auto range = range_of(segment.address, segment.total_bytes, segment.expandable))
        held.add(*range);
  for (auto mark = trace.marks.rbegin(); mark != trace.marks.rend(); ++mark)
    if (const auto range = range_of(*mark)) {
      if (memory_came(mark->kind)) held.remove(*range);
      if (memory_went(mark->kind)) held.add(*range);
    }
  return held;
}

}  // namespace

std::optional<PolicyView> recorded_view(const Trace& trace,
                                        const std::vector<SnapshotSegment>& segments,
                                        const std::vector<std::uint32_t>& op_of_event) {
  const std::uint32_t ops = op_of_event.back();
  if (trace.addresses.size() != trace.blocks || ops == 0) return std::nullopt;
  PolicyView view;
  view.policy = "recorded";
  std::vector<BackingChange> backing;
  std::uint32_t op = 0;
  HeldRanges held([&](bool begins, const HeldRanges::Range& range) {
    backing.push_back({op, begins, range.page, range.address, range.end - range.address});
  });
  held_at_start(trace, segments).for_each([&](const HeldRanges::Range& range) { held.add(range); });
  view.held.push_back({0, held.bytes()});
  for (const TraceMark& mark : trace.marks) {
    const auto range = range_of(mark);
    if (!range || (!memory_came(mark.kind) && !memory_went(mark.kind))) continue;
    op = op_of_event[mark.event];
    memory_came(mark.kind) ? held.add(*range) : held.remove(*range);
    view.held.push_back({op, held.bytes()});
    ++view.figures.ledger.calls[static_cast<std::size_t>(
        memory_came(mark.kind) ? DriverCall::kAllocate : DriverCall::kFree)];
  }
  if (backing.empty()) return std::nullopt;

  view.places = trace.addresses;
  std::uint64_t live = 0;
  std::vector<std::uint64_t> live_after;
  for (const TraceEvent& event : trace.events) {
    if (event.op == TraceOp::kFreeRequested) continue;
    live += event.op == TraceOp::kAlloc ? event.size_bytes : std::uint64_t{0} - event.size_bytes;
    live_after.push_back(live);
    if (event.op == TraceOp::kAlloc && event.size_bytes == 0)
      view.places[event.block] = PolicyView::kNowhere;
  }
  for (const HeldStep& step : view.held)
    if (step.bytes > view.figures.reserved_peak_bytes) {
      view.figures.reserved_peak_bytes = step.bytes;
      view.figures.live_at_peak_bytes = live_after[std::min(step.op, ops - 1)];
    }
  view.ops_done = ops;
  lay_out(view, backing, ops);
  return view;
}

}  // namespace tenon
