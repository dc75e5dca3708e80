#include "tenon/device/stream_table.h"

#include <algorithm>

#include "tenon/base/error.h"

namespace tenon {

// Inline: each request of a simulated device calls it.
inline std::size_t StreamTable::require(const char* call, Stream stream) const {
  if (stream.device == device_ && stream.id < streams_.size() && streams_[stream.id].exists)
      [[likely]]
    return stream.id;
  raise<DeviceError>("{}({}): {} has no such stream (any more)", call, to_string(stream),
                     to_string(device_));
}

void StreamTable::queue_work(Stream stream, std::uint64_t now_ns) {
  StreamState& state = streams_[require("queue_work", stream)];
  state.finish_ns = std::max(state.finish_ns, now_ns + lag_ns_);
  device_finish_ns_ = std::max(device_finish_ns_, state.finish_ns);
}

Stream StreamTable::create_stream() {
  if (free_streams_.empty()) {
    free_streams_.push_back(static_cast<std::uint32_t>(streams_.size()));
    streams_.emplace_back();
  }
  const std::uint32_t id = free_streams_.back();
  free_streams_.pop_back();
  streams_[id].exists = true;
  return Stream{device_, id};
}

void StreamTable::destroy_stream(Stream stream) {
  const std::size_t index = require("destroy_stream", stream);
  if (index == 0)
    raise<DeviceError>("destroy_stream({}): the default stream stays", to_string(stream));
  free_streams_.push_back(stream.id);
  streams_[index].exists = false;
}

Event StreamTable::record(Stream stream) {
  const std::uint64_t finish_ns = streams_[require("record", stream)].finish_ns;
  if (free_events_.empty()) {
    free_events_.push_back(static_cast<std::uint32_t>(events_.size()));
    events_.emplace_back();
  }
  const std::uint32_t slot = free_events_.back();
  free_events_.pop_back();
  EventState& state = events_[slot];
  state = EventState{finish_ns, state.generation + 1, true};
  return Event{(std::uint64_t{state.generation} << 32) | slot};
}

void StreamTable::stream_wait(Stream stream, Event event) {
  StreamState& state = streams_[require("stream_wait", stream)];
  const EventState& awaited = events_[require("stream_wait", event)];
  state.finish_ns = std::max(state.finish_ns, awaited.finish_ns);
}

void StreamTable::destroy_event(Event event) {
  const std::size_t slot = require("destroy_event", event);
  events_[slot].exists = false;
  free_events_.push_back(static_cast<std::uint32_t>(slot));
}

std::uint64_t StreamTable::finish_ns(const char* call, Event event) const {
  return events_[require(call, event)].finish_ns;
}

std::uint64_t StreamTable::finish_ns(const char* call, Stream stream) const {
  return streams_[require(call, stream)].finish_ns;
}

std::size_t StreamTable::require(const char* call, Event event) const {
  const std::size_t slot = event.id & 0xffffffff;
  if (slot < events_.size() && events_[slot].exists &&
      events_[slot].generation == event.id >> 32) [[likely]]
    return slot;
  raise<DeviceError>("{}(event {:#x}): {} has no such event (any more)", call, event.id,
                     to_string(device_));
}

}  // namespace tenon
