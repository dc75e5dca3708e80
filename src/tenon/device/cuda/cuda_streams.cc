#include "tenon/device/cuda/cuda_streams.h"

#include <fmt/format.h>

namespace tenon {

cu::Stream CudaStreams::handle(const char* call, Stream stream) const {
  return streams_[require(call, stream)].handle;
}

Stream CudaStreams::create() {
  cu::Stream handle = nullptr;
  driver_.call(driver_.stream_create, &handle, cu::kStreamNonBlocking);
  streams_.push_back({handle});
  return Stream{device_, static_cast<std::uint32_t>(streams_.size() - 1)};
}

void CudaStreams::destroy(Stream stream) {
  const std::size_t index = require("destroy_stream", stream);
  if (index == 0)
    raise<DeviceError>("destroy_stream({}): the default stream stays", to_string(stream));
  StreamState& state = streams_[index];
  if (state.adopted)
    numbers_.erase(state.handle);
  else
    driver_.call_to_give_back(driver_.stream_destroy, state.handle);
  state.exists = false;
}

Stream CudaStreams::add(cu::Stream handle, bool borrowed) {
  const auto id = static_cast<std::uint32_t>(streams_.size());
  StreamState made;
  made.handle = handle;
  made.adopted = true;
  made.borrowed = borrowed;
  if (borrowed && driver_.stream_get_id)
    driver_.call(driver_.stream_get_id, handle, &made.driver_id);
  streams_.push_back(made);
  numbers_.insert_or_assign(handle, id);
  return Stream{device_, id};
}

Stream CudaStreams::adopt(cu::Stream handle) {
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  if (value == 0 || value == cu::kStreamLegacy) return Stream{device_, 0};
  if (value == cu::kStreamPerThread)
    throw InvalidArgument(
        "CU_STREAM_PER_THREAD is another stream in every thread, so memory cannot be ordered by "
        "it; use an explicit stream, or the legacy default stream");
  const auto known = numbers_.find(handle);
  if (known == numbers_.end()) return add(handle, false);
  streams_[known->second].borrowed = false;
  return Stream{device_, known->second};
}

Stream CudaStreams::borrow(cu::Stream handle) {
  const auto known = numbers_.find(handle);
  if (known == numbers_.end()) {
    const auto value = reinterpret_cast<std::uintptr_t>(handle);
    return value <= cu::kStreamPerThread ? adopt(handle) : add(handle, true);
  }
  StreamState& stream = streams_[known->second];
  if (!stream.borrowed) return Stream{device_, known->second};
  unsigned long long driver_id = 0;
  if (driver_.stream_get_id) driver_.call(driver_.stream_get_id, handle, &driver_id);
  const Stream number{device_, known->second};
  const bool is_another = driver_id != stream.driver_id;
  if (is_another && any_capturing()) {
    stream.replaced = true;
    return add(handle, true);
  }
  if (is_another) driver_.call(driver_.ctx_synchronize);
  stream.driver_id = driver_id;
  for (EventState& event : events_) {
    if (!event.exists || event.stream != number || event.awaits != Awaits::kStream) continue;
    if (is_another)
      event.awaits = Awaits::kNothingMore;
    else
      settle(event);
  }
  return number;
}

bool CudaStreams::is_capturing(cu::Stream handle) const {
  int status = cu::kCaptureNone;
  const cu::Result result = driver_.stream_is_capturing(handle, &status);
  // The default stream, while a stream that waits for it captures: it may not be touched either.
  if (result == cu::kErrorStreamCaptureImplicit) return true;
  if (result != cu::kSuccess)
    driver_.fail(result, CudaDriver::describe(driver_.stream_is_capturing, handle, &status));
  return status != cu::kCaptureNone;
}

bool CudaStreams::any_capturing() const {
  if (captures_expected_ > 0) return true;
  for (const StreamState& stream : streams_)
    if (is_reachable(stream) && is_capturing(stream.handle)) return true;
  return false;
}

Event CudaStreams::record(Stream stream) {
  const cu::Stream on = handle("record", stream);
  if (free_events_.empty()) {
    EventState made;
    driver_.call(driver_.event_create, &made.handle, cu::kEventDisableTiming);
    free_events_.push_back(static_cast<std::uint32_t>(events_.size()));
    events_.push_back(made);
  }
  const std::uint32_t slot = free_events_.back();
  EventState& event = events_[slot];
  const bool now = is_reachable(stream) && !is_capturing(on);
  if (now) driver_.call(driver_.event_record, event.handle, on);
  event.awaits = now ? Awaits::kNothing : Awaits::kStream;
  event.stream = stream;
  event.exists = true;
  ++event.generation;
  free_events_.pop_back();
  return named(slot);
}

// False while the event cannot be recorded.
bool CudaStreams::settle(EventState& event) {
  if (event.awaits != Awaits::kStream) return true;
  const StreamState& stream = streams_[event.stream.id];
  if (!is_reachable(stream) || is_capturing(stream.handle)) return false;
  driver_.call(driver_.event_record, event.handle, stream.handle);
  event.awaits = Awaits::kNothing;
  return true;
}

bool CudaStreams::only_device_tells(Event event) {
  EventState& state = require("wait", event);
  return state.awaits == Awaits::kStream && !is_reachable(streams_[state.stream.id]);
}

std::vector<Event> CudaStreams::complete_on_device() const {
  std::vector<Event> events;
  for (std::uint32_t slot = 0; slot < events_.size(); ++slot) {
    const EventState& event = events_[slot];
    if (event.exists && event.awaits == Awaits::kStream &&
        !is_reachable(streams_[event.stream.id]))
      events.push_back(named(slot));
  }
  return events;
}

void CudaStreams::set_complete(const std::vector<Event>& events) {
  for (const Event& event : events) {
    EventState& state = events_[event.id & 0xffffffff];
    if (state.exists && state.generation == event.id >> 32 && state.awaits == Awaits::kStream)
      state.awaits = Awaits::kNothingMore;
  }
}

bool CudaStreams::query(Event event) {
  EventState& state = require("query", event);
  if (!settle(state)) return false;
  if (state.awaits == Awaits::kNothingMore) return true;
  const cu::Result result = driver_.event_query(state.handle);
  if (result == cu::kErrorNotReady) return false;
  if (result != cu::kSuccess)
    driver_.fail(result, CudaDriver::describe(driver_.event_query, state.handle));
  return true;
}

cu::Event CudaStreams::recorded(const char* call, Event event) {
  EventState& state = require(call, event);
  if (!settle(state))
    throw CaptureRefusal(fmt::format("{}: {} captures a graph, whose work does not run now, so "
                                  "nothing can wait for it; end the capture first",
                                  call, to_string(state.stream)));
  return state.awaits == Awaits::kNothingMore ? nullptr : state.handle;
}

void CudaStreams::destroy(Event event) {
  require("destroy_event", event).exists = false;
  free_events_.push_back(static_cast<std::uint32_t>(event.id & 0xffffffff));
}

void CudaStreams::release_all() {
  for (const EventState& event : events_) driver_.event_destroy(event.handle);
  for (const StreamState& stream : streams_)
    if (stream.handle != nullptr && stream.exists && !stream.adopted)
      driver_.stream_destroy(stream.handle);
  events_.clear();
  free_events_.clear();
  streams_.assign(1, {});
}

std::size_t CudaStreams::require(const char* call, Stream stream) const {
  if (stream.device == device_ && stream.id < streams_.size() && streams_[stream.id].exists)
      [[likely]]
    return stream.id;
  raise<DeviceError>("{}({}): {} has no such stream (any more)", call, to_string(stream),
                     to_string(device_));
}

CudaStreams::EventState& CudaStreams::require(const char* call, Event event) {
  const std::size_t slot = event.id & 0xffffffff;
  if (slot < events_.size() && events_[slot].exists &&
      events_[slot].generation == event.id >> 32) [[likely]]
    return events_[slot];
  raise<DeviceError>("{}(event {:#x}): {} has no such event (any more)", call, event.id,
                     to_string(device_));
}

}  // namespace tenon
