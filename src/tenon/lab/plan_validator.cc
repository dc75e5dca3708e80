#include "tenon/lab/plan_validator.h"

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <vector>

namespace tenon {
namespace {

struct LiveRange {
  std::uint64_t end = 0;
  std::uint64_t allocation = 0;  // its number on the stream
};

struct StreamCheck {
  std::map<std::uint64_t, LiveRange> live;  // by offset
  std::uint64_t allocations = 0;
};

struct Place {
  std::uint32_t stream = 0;
  std::uint64_t offset = 0;
};

// Puts the stream's next allocation where the plan says; what is wrong with that, or nothing.
std::string occupy(const Plan& plan, const TraceEvent& event, StreamCheck& stream, Place& place) {
  const std::uint64_t number = stream.allocations++;
  const StreamPlan* of_stream = plan.stream(event.stream);
  if (of_stream == nullptr || number >= of_stream->slots.size())
    return fmt::format("stream {}: allocation {} has no slot", event.stream, number);
  const PlanSlot& slot = of_stream->slots[number];
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
  const auto above = stream.live.lower_bound(slot.offset);
  const bool hits_above = above != stream.live.end() && above->first < end;
  const bool hits_below =
      above != stream.live.begin() && std::prev(above)->second.end > slot.offset;
  if (hits_above || hits_below)
    return fmt::format("stream {}: allocation {} at {} overlaps allocation {}, which still lives",
                       event.stream, number, slot.offset,
                       (hits_above ? above : std::prev(above))->second.allocation);
  stream.live.emplace(slot.offset, LiveRange{end, number});
  place = {event.stream, slot.offset};
  return {};
}

}  // namespace

std::string find_plan_error(const Plan& plan, const Trace& trace) {
  std::vector<StreamCheck> streams(trace.streams.size());
  std::vector<Place> places(trace.blocks);
  for (const TraceEvent& event : trace.events) {
    if (event.size_bytes == 0) continue;
    if (event.op == TraceOp::kAlloc) {
      std::string error = occupy(plan, event, streams[event.stream], places[event.block]);
      if (!error.empty()) return error;
    } else if (event.op == TraceOp::kFreeCompleted) {
      const Place& place = places[event.block];
      streams[place.stream].live.erase(place.offset);
    }
  }
  for (std::uint32_t id = 0; id < streams.size(); ++id) {
    const StreamPlan* of_stream = plan.stream(id);
    const std::uint64_t slots = of_stream == nullptr ? 0 : of_stream->slots.size();
    if (slots != streams[id].allocations)
      return fmt::format("stream {}: {} slots for {} allocations", id, slots,
                         streams[id].allocations);
  }
  return {};
}

}  // namespace tenon
