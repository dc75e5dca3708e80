#include "tenon/trace/snapshot_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "tenon/base/byte_size.h"
#include "tenon/base/interruption.h"
#include "tenon/heap/best_fit_heap.h"
#include "tenon/trace/pickle_writer.h"

namespace tenon {
namespace {

constexpr std::uint64_t kRangeBytes = std::uint64_t{1} << 44;  // of addresses, for each stream
constexpr std::uint64_t kRounding = 512;
constexpr std::uint64_t kGapBytes = 2 * kMiB;  // ranges closer than this are one segment
// What stands for a stack and for a frame among the writer's names.
constexpr std::uint64_t kStackNames = std::uint64_t{1} << 32;

// Best fit in a range of each stream, for recordings that know no addresses.
std::vector<std::uint64_t> made_up_addresses(const Trace& trace) {
  std::vector<std::uint64_t> addresses(trace.blocks);
  std::vector<BestFitHeap> heaps(trace.streams.size());
  std::vector<Block*> places(trace.blocks);
  for (std::size_t i = 0; i < heaps.size(); ++i)
    heaps[i].add_extent((i + 1) * kRangeBytes, kRangeBytes);
  for (const TraceEvent& event : trace.events) {
    if (event.op == TraceOp::kAlloc) {
      const std::uint64_t size =
          std::max(kRounding, (event.size_bytes + kRounding - 1) / kRounding * kRounding);
      Block* place = heaps[event.stream].place(size);
      places[event.block] = place;
      // No range holds it: more than 16 TiB are live. Addresses may then overlap.
      addresses[event.block] = place != nullptr ? place->offset : kRangeBytes;
    } else if (event.op == TraceOp::kFreeCompleted && places[event.block] != nullptr) {
      heaps[event.stream].release(places[event.block]);
    }
  }
  return addresses;
}

// A trace, with addresses and segments, made up where it has none.
class Complete {
 public:
  Complete(const Trace& trace, const std::vector<SnapshotSegment>& segments) : trace_(trace) {
    addresses_ = trace.addresses.empty() ? made_up_addresses(trace) : trace.addresses;
    for (const SnapshotSegment& segment : segments)
      if (segment.device == trace.device) segments_.push_back(segment);
    if (!segments_.empty()) return;
    make_up_segments();
    made_up_ = !segments_.empty();
  }

  std::uint64_t address(std::uint32_t block) const { return addresses_[block]; }
  const std::vector<SnapshotSegment>& segments() const { return segments_; }
  bool has_made_up_segments() const { return made_up_; }

 private:
  struct Last {
    std::uint64_t end = 0;
    std::uint64_t stream = 0;
  };

  void make_up_segments() {
    std::map<std::uint64_t, Last> covered;  // by start
    std::map<std::uint64_t, SnapshotBlock> live;
    for (const TraceEvent& event : trace_.events) {
      const std::uint64_t address = addresses_[event.block];
      if (event.op == TraceOp::kAlloc) {
        Last& last = covered[address];
        last.end = std::max(last.end, address + std::max<std::uint64_t>(1, event.size_bytes));
        last.stream = trace_.streams[event.stream];
        SnapshotBlock block;
        block.address = address;
        block.size_bytes = block.requested_bytes = std::max<std::uint64_t>(1, event.size_bytes);
        block.site = event.site;
        block.state = BlockState::kAllocated;
        live[address] = block;
      } else if (event.op == TraceOp::kFreeRequested) {
        live[address].state = BlockState::kPendingFree;
      } else {
        live.erase(address);
      }
    }
    for (const auto& [start, last] : covered) {
      const bool joins = !segments_.empty() && segments_.back().stream == last.stream &&
                         start < end_of(segments_.back()) + kGapBytes;
      if (!joins) {
        SnapshotSegment segment;
        segment.address = start;
        segment.device = trace_.device;
        segment.stream = last.stream;
        segment.expandable = true;
        segments_.push_back(segment);
      }
      SnapshotSegment& segment = segments_.back();
      segment.total_bytes = std::max(segment.total_bytes, last.end - segment.address);
    }
    for (SnapshotSegment& segment : segments_) tile(segment, live);
  }

  static std::uint64_t end_of(const SnapshotSegment& segment) {
    return segment.address + segment.total_bytes;
  }

  static void tile(SnapshotSegment& segment, const std::map<std::uint64_t, SnapshotBlock>& live) {
    std::uint64_t at = segment.address;
    for (auto block = live.lower_bound(at); block != live.end(); ++block) {
      if (block->first >= end_of(segment)) break;
      if (block->first < at) continue;
      segment.add_free(at, block->first);
      segment.blocks.push_back(block->second);
      at = block->first + block->second.size_bytes;
    }
    segment.add_free(at, end_of(segment));
  }

  const Trace& trace_;
  std::vector<std::uint64_t> addresses_;
  std::vector<SnapshotSegment> segments_;
  bool made_up_ = false;
};

class SnapshotWriter {
 public:
  SnapshotWriter(std::span<const Trace> traces, const std::vector<SnapshotSegment>& segments) {
    // Each trace at its device's place, if that is free.
    for (const Trace& trace : traces) {
      std::size_t place = trace.device < 64 ? trace.device : 0;
      while (places_.count(place) != 0) ++place;
      places_.emplace(place, Part{&trace, Complete(trace, segments)});
    }
    for (const Trace& trace : traces)
      for (const TraceEvent& event : trace.events) first_us_ = std::min(first_us_, event.time_us);
    for (const Trace& trace : traces)
      for (const TraceMark& mark : trace.marks) first_us_ = std::min(first_us_, mark.time_us);
  }

  std::string write() {
    out_.begin_dict();
    out_.key("segments");
    out_.begin_list();
    for (const auto& [device, part] : places_)
      for (const SnapshotSegment& segment : part.complete.segments()) {
        out_.next_item();
        write_segment(segment, device, *part.trace->sites);
      }
    out_.end_list();
    if (std::any_of(places_.begin(), places_.end(), [](const auto& place) {
          return place.second.complete.has_made_up_segments();
        }))
      number(kMadeUpSegments, 1);
    out_.key("device_traces");
    write_traces();
    out_.key("allocator_settings");
    out_.begin_dict();
    out_.key("PYTORCH_CUDA_ALLOC_CONF");
    out_.text("");
    out_.end_dict();
    out_.key("external_annotations");
    write_annotations();
    out_.end_dict();
    return out_.finish();
  }

 private:
  struct Part {
    const Trace* trace;
    Complete complete;
  };

  void number(std::string_view key, std::uint64_t value) {
    out_.key(key);
    out_.number(value);
  }
  void text(std::string_view key, std::string_view value) {
    out_.key(key);
    out_.text(value);
  }

  void write_segment(const SnapshotSegment& segment, std::size_t device, const SiteTable& sites) {
    std::uint64_t allocated = 0;
    std::uint64_t active = 0;
    std::uint64_t requested = 0;
    for (const SnapshotBlock& block : segment.blocks) {
      if (block.state == BlockState::kAllocated) allocated += block.size_bytes;
      if (!block.in_use()) continue;
      active += block.size_bytes;
      requested += block.requested_bytes;
    }
    out_.begin_dict();
    number("device", device);
    number("address", segment.address);
    number("total_size", segment.total_bytes);
    number("allocated_size", allocated);
    number("active_size", active);
    number("requested_size", requested);
    number("stream", segment.stream);
    text("segment_type", segment.small_pool ? "small" : "large");
    out_.key("segment_pool_id");
    unsigned long first = 0;
    unsigned long second = 0;
    if (std::sscanf(segment.pool.c_str(), "(%lu, %lu)", &first, &second) != 2) first = second = 0;
    out_.pair_of_numbers(first, second);
    out_.key("is_expandable");
    out_.boolean(segment.expandable);
    write_frames(segment.site, sites);
    out_.key("blocks");
    out_.begin_list();
    for (const SnapshotBlock& block : segment.blocks) {
      out_.next_item();
      out_.begin_dict();
      number("address", block.address);
      number("size", block.size_bytes);
      number("requested_size", block.requested_bytes);
      text("state", block.state == BlockState::kAllocated     ? "active_allocated"
                    : block.state == BlockState::kPendingFree ? "active_pending_free"
                                                              : "inactive");
      write_frames(block.site, sites);
      out_.end_dict();
    }
    out_.end_list();
    out_.end_dict();
  }

  // Traces of one file share a table of sites; others get names of their own.
  void write_frames(std::uint32_t site, const SiteTable& sites) {
    const std::uint64_t table = tables_.try_emplace(&sites, tables_.size()).first->second << 33;
    const std::uint32_t stack = sites.site(site).stack;
    out_.key("frames");
    if (out_.refer(table | kStackNames | stack)) return;
    out_.begin_list();
    for (const std::uint32_t frame : sites.stack(stack)) {
      out_.next_item();
      if (out_.refer(table | frame)) continue;
      out_.begin_dict();
      text("name", sites.text(sites.frame(frame).function));
      text("filename", sites.text(sites.frame(frame).file));
      number("line", sites.frame(frame).line);
      out_.end_dict();
      out_.remember(table | frame);
    }
    out_.end_list();
    out_.remember(table | kStackNames | stack);
  }

  void write_traces() {
    out_.begin_list();
    const std::size_t count = places_.empty() ? 0 : places_.rbegin()->first + 1;
    for (std::size_t device = 0; device < count; ++device) {
      out_.next_item();
      out_.begin_list();
      if (const auto part = places_.find(device); part != places_.end()) write_part(part->second);
      out_.end_list();
    }
    out_.end_list();
  }

  void write_part(const Part& part) {
    const Trace& trace = *part.trace;
    std::size_t mark = 0;
    for (std::size_t i = 0; i <= trace.events.size(); ++i) {
      stop_if_asked();
      for (; mark < trace.marks.size() && trace.marks[mark].event <= i; ++mark)
        write_mark(trace.marks[mark], trace);
      if (i == trace.events.size()) break;
      const TraceEvent& event = trace.events[i];
      // Readers find blocks from before the recording by their frees and in the segments.
      if (event.op == TraceOp::kAlloc && event.block < trace.early_blocks) continue;
      out_.next_item();
      out_.begin_dict();
      text("action", trace_op_name(event.op));
      number("addr", part.complete.address(event.block));
      number("size", event.size_bytes);
      number("stream", trace.streams[event.stream]);
      write_rest(event.time_us, event.site, *trace.sites);
    }
  }

  // `tag`: to be written in place of the site's.
  void write_rest(std::int64_t time_us, std::uint32_t site, const SiteTable& sites,
                  std::uint32_t tag = 0) {
    number("time_us", static_cast<std::uint64_t>(time_us - first_us_));
    text("compile_context", "N/A");
    text("user_metadata", sites.text(tag != 0 ? tag : sites.site(site).tag));
    write_frames(site, sites);
    out_.end_dict();
  }

  void write_mark(const TraceMark& mark, const Trace& trace) {
    if (mark.kind == MarkKind::kPhaseBegin || mark.kind == MarkKind::kPhaseEnd) return;
    out_.next_item();
    out_.begin_dict();
    text("action", mark.kind == MarkKind::kOther ? trace.sites->text(mark.text)
                                                 : mark_kind_name(mark.kind));
    if (mark.kind != MarkKind::kOutOfMemory) {
      number("addr", mark.address);
    } else if (mark.device_free_bytes != TraceMark::kUnknown) {
      number("device_free", mark.device_free_bytes);
    }
    number("size", mark.size_bytes);
    number("stream", mark.stream);
    write_rest(mark.time_us, mark.site, *trace.sites,
               is_sleep(mark.kind) || mark.kind == MarkKind::kWake ? mark.text : 0);
  }

  void write_annotations() {
    out_.begin_list();
    for (const auto& [device, part] : places_)
      for (const TraceMark& mark : part.trace->marks) {
        if (mark.kind != MarkKind::kPhaseBegin && mark.kind != MarkKind::kPhaseEnd) continue;
        out_.next_item();
        out_.begin_dict();
        text("stage", mark.kind == MarkKind::kPhaseBegin ? "START" : "END");
        text("name", part.trace->sites->text(mark.text));
        number("device", device);
        number("time_us", static_cast<std::uint64_t>(mark.time_us - first_us_));
        out_.end_dict();
      }
    out_.end_list();
  }

  std::map<std::size_t, Part> places_;
  std::map<const SiteTable*, std::uint64_t> tables_;
  std::int64_t first_us_ = 0;
  PickleWriter out_;
};

}  // namespace

std::string format_snapshot(std::span<const Trace> traces,
                            const std::vector<SnapshotSegment>& segments) {
  return SnapshotWriter(traces, segments).write();
}

}  // namespace tenon
