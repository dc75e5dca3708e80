#include "tenon/lab/plan_validator.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <vector>

namespace tenon {
namespace {

struct LiveRange {
  std::uint64_t end = 0;
  std::uint64_t allocation = 0;  // its number on its stream
};

// By offset. One for each stream, or one for all where the plan says that they share.
using LiveRanges = std::map<std::uint64_t, LiveRange>;

struct Place {
  std::uint32_t stream = 0;
  std::uint64_t offset = 0;
};

// Puts the stream's next allocation where the plan says; what is wrong with that, or nothing.
std::string occupy(const Plan& plan, const TraceEvent& event, std::uint64_t number,
                   LiveRanges& ranges, Place& place) {
  const StreamPlan* of_stream = plan.stream(event.stream);
  // A plan with a loop goes on for ever, one without must have a slot for each allocation.
  const bool loops = of_stream != nullptr && of_stream->loop_begin != 0;
  if (of_stream == nullptr || (!loops && number >= of_stream->slots.size()))
    return fmt::format("stream {}: allocation {} has no slot", event.stream, number);
  const std::uint64_t round = of_stream->slots.size() - of_stream->loop_begin;
  std::uint64_t index = number;
  if (number >= of_stream->slots.size())
    index = of_stream->loop_begin + (number - of_stream->loop_begin) % round;
  const PlanSlot& slot = of_stream->slots[index];
  const std::uint64_t end = slot.offset + slot.size;
  if (slot.size < event.size_bytes)
    return fmt::format("stream {}: allocation {} asks for {} bytes, its slot has {}", event.stream,
                       number, event.size_bytes, slot.size);
  if (slot.offset % plan.unit_bytes() != 0 || slot.size % plan.unit_bytes() != 0)
    return fmt::format("stream {}: slot {} (offset {}, {} bytes) is not in units of {}",
                       event.stream, number, slot.offset, slot.size, plan.unit_bytes());
  if (end < slot.offset || end > of_stream->size_bytes)
    return fmt::format("stream {}: slot {} ends at {}, beyond the plan's {} bytes", event.stream,
                       number, end, of_stream->size_bytes);
  const auto above = ranges.lower_bound(slot.offset);
  const bool hits_above = above != ranges.end() && above->first < end;
  const bool hits_below =
      above != ranges.begin() && std::prev(above)->second.end > slot.offset;
  if (hits_above || hits_below)
    return fmt::format("stream {}: allocation {} at {} overlaps allocation {}, which still lives",
                       event.stream, number, slot.offset,
                       (hits_above ? above : std::prev(above))->second.allocation);
  ranges.emplace(slot.offset, LiveRange{end, number});
  place = {event.stream, slot.offset};
  return {};
}

}  // namespace

std::string find_plan_error(const Plan& plan, const Trace& trace) {
  std::vector<std::uint64_t> allocations(trace.streams.size());
  std::vector<LiveRanges> ranges(plan.shared() ? 1 : trace.streams.size());
  const auto range_of = [&](std::uint32_t stream) -> LiveRanges& {
    return ranges[plan.shared() ? 0 : stream];
  };
  std::vector<Place> places(trace.blocks);
  for (const TraceEvent& event : trace.events) {
    if (event.size_bytes == 0) continue;
    if (event.op == TraceOp::kAlloc) {
      std::string error = occupy(plan, event, allocations[event.stream]++, range_of(event.stream),
                                 places[event.block]);
      if (!error.empty()) return error;
    } else if (event.op == TraceOp::kFreeCompleted) {
      const Place& place = places[event.block];
      range_of(place.stream).erase(place.offset);
    }
  }
  for (std::uint32_t id = 0; id < allocations.size(); ++id) {
    const StreamPlan* of_stream = plan.stream(id);
    const std::uint64_t slots = of_stream == nullptr ? 0 : of_stream->slots.size();
    const bool loops = of_stream != nullptr && of_stream->loop_begin != 0;
    if (!loops && slots != allocations[id])
      return fmt::format("stream {}: {} slots for {} allocations", id, slots, allocations[id]);
  }
  return {};
}

std::string find_packing_error(const std::vector<PlacedBuffer>& buffers,
                               std::uint64_t capacity_bytes) {
  struct Change {
    std::int64_t time;
    bool begins;  // at one time, ends come first
    std::size_t buffer;
  };
  std::vector<Change> changes;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const PlacedBuffer& b = buffers[i];
    if (b.offset > capacity_bytes || b.size > capacity_bytes - b.offset)
      return fmt::format("buffer {} at {} with {} bytes ends beyond the capacity, {}", i, b.offset,
                         b.size, capacity_bytes);
    changes.push_back({b.lower, true, i});
    changes.push_back({b.upper, false, i});
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return std::tie(a.time, a.begins, a.buffer) < std::tie(b.time, b.begins, b.buffer);
  });
  std::map<std::uint64_t, std::size_t> live;  // buffers by offset
  for (const Change& change : changes) {
    const PlacedBuffer& buffer = buffers[change.buffer];
    if (!change.begins) {
      live.erase(buffer.offset);
      continue;
    }
    const auto above = live.lower_bound(buffer.offset);
    const auto overlaps = [&](std::size_t other) {
      return fmt::format("buffers {} and {} overlap: [{}, {}) and [{}, {}), both live at {}",
                         change.buffer, other, buffer.offset, buffer.offset + buffer.size,
                         buffers[other].offset, buffers[other].offset + buffers[other].size,
                         change.time);
    };
    if (above != live.end() && above->first < buffer.offset + buffer.size)
      return overlaps(above->second);
    if (above != live.begin()) {
      const std::size_t below = std::prev(above)->second;
      if (buffers[below].offset + buffers[below].size > buffer.offset) return overlaps(below);
    }
    live.emplace(buffer.offset, change.buffer);
  }
  return {};
}

}  // namespace tenon
