// The stand-in's functions: contents, streams, events, graphs.
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>

#include "cuda_stand_in/world.h"

using namespace tenon::stand_in;
using namespace tenon::cu;
using tenon::cu::Result;

#define STAND_IN_STREAM(state, stream, name)       \
  StreamState* const state = w.stream_of(stream);  \
  if (state == nullptr) return w.fault(kErrorInvalidHandle, name ": no such stream")

#define STAND_IN_EVENT(state, event, name)                              \
  EventState* const state = reinterpret_cast<EventState*>(event);       \
  if (!w.events.contains(state)) return w.fault(kErrorInvalidHandle, name ": no such event")

extern "C" {

// --- Contents.

Result cuMemsetD8Async(Address address, unsigned char value, std::size_t size, Stream stream) {
  STAND_IN_ENTER("cuMemsetD8Async");
  STAND_IN_STREAM(on, stream, "cuMemsetD8Async");
  if (w.is_unknown(address)) return kErrorInvalidValue;
  if (const Result bad = w.forbid_implicit_capture(on, "cuMemsetD8Async"); bad != kSuccess)
    return bad;
  const int device = on->device;
  w.enqueue(on, [=, &w] {
    w.touch(device, address, size, "cuMemsetD8",
            [&] { std::memset(reinterpret_cast<void*>(address), value, size); });
  });
  return w.lost;
}

Result cuMemcpyAsync(Address to, Address from, std::size_t size, Stream stream) {
  STAND_IN_ENTER("cuMemcpyAsync");
  STAND_IN_STREAM(on, stream, "cuMemcpyAsync");
  if (to == 0 || from == 0) return kErrorInvalidValue;
  if (const Result bad = w.forbid_implicit_capture(on, "cuMemcpyAsync"); bad != kSuccess)
    return bad;
  const int device = on->device;
  const bool to_program = w.is_unknown(to);
  // From the program's own memory: the bytes are taken before the call returns.
  std::shared_ptr<std::vector<char>> staged;
  if (w.is_unknown(from)) {
    const char* bytes = reinterpret_cast<const char*>(from);
    staged = std::make_shared<std::vector<char>>(bytes, bytes + size);
  }
  w.enqueue(on, [=, &w] {
    const auto act = [&] {
      const void* source = staged ? staged->data() : reinterpret_cast<const void*>(from);
      std::memmove(reinterpret_cast<void*>(to), source, size);
    };
    const auto write = [&] {
      if (to_program) return act();
      w.touch(device, to, size, "cuMemcpy to", act);
    };
    if (staged) return write();
    w.touch(device, from, size, "cuMemcpy from", write);
  });
  // Into the program's own memory: the bytes are there when the call returns.
  if (to_program && on->capture == nullptr) w.run_until(on, on->queued);
  return w.lost;
}

// --- Streams.

Result cuStreamCreate(Stream* stream, unsigned flags) {
  STAND_IN_ENTER("cuStreamCreate");
  auto made = std::make_unique<StreamState>();
  made->device = current_context()->device;
  made->id = w.next_stream++;
  made->blocking = (flags & kStreamNonBlocking) == 0;
  if (w.free_handles.empty()) {
    *stream = reinterpret_cast<Stream>(0x700000000000u + 64 * made->id);
  } else {
    *stream = w.free_handles.back();
    w.free_handles.pop_back();
  }
  w.streams.emplace(*stream, std::move(made));
  return kSuccess;
}

// It returns at once, and what is queued still runs.
Result cuStreamDestroy_v2(Stream stream) {
  STAND_IN_ENTER("cuStreamDestroy_v2");
  const auto known = w.streams.find(stream);
  if (known == w.streams.end())
    return w.fault(kErrorInvalidHandle, "cuStreamDestroy: no such stream");
  if (known->second->capture != nullptr)
    return w.invalidate(*known->second->capture, kErrorStreamCaptureUnsupported,
                        "cuStreamDestroy of a capturing stream");
  w.retired.push_back(std::move(known->second));
  w.streams.erase(known);
  w.free_handles.push_back(stream);
  return kSuccess;
}

Result cuStreamGetCtx(Stream stream, Context* context) {
  STAND_IN_ENTER("cuStreamGetCtx");
  STAND_IN_STREAM(on, stream, "cuStreamGetCtx");
  *context = reinterpret_cast<Context>(&w.contexts.at(static_cast<std::size_t>(on->device)));
  return kSuccess;
}

Result cuStreamGetId(Stream stream, unsigned long long* id) {
  STAND_IN_ENTER("cuStreamGetId");
  STAND_IN_STREAM(on, stream, "cuStreamGetId");
  *id = on->id;
  return kSuccess;
}

Result cuStreamSynchronize(Stream stream) {
  STAND_IN_ENTER("cuStreamSynchronize");
  STAND_IN_STREAM(on, stream, "cuStreamSynchronize");
  if (on->capture != nullptr)
    return w.invalidate(*on->capture, kErrorStreamCaptureUnsupported,
                        "cuStreamSynchronize of a capturing stream");
  if (const Result bad = w.forbid_implicit_capture(on, "cuStreamSynchronize"); bad != kSuccess)
    return bad;
  if (const Result bad = w.forbid_while_capturing("cuStreamSynchronize"); bad != kSuccess)
    return bad;
  w.run_until(on, on->queued);
  return w.lost;
}

Result cuStreamWaitEvent(Stream stream, Event event, unsigned flags) {
  STAND_IN_ENTER("cuStreamWaitEvent");
  STAND_IN_STREAM(on, stream, "cuStreamWaitEvent");
  STAND_IN_EVENT(awaited, event, "cuStreamWaitEvent");
  if (flags != 0) return w.fault(kErrorInvalidValue, "cuStreamWaitEvent: flags");
  if (awaited->capture != nullptr) {
    if (awaited->capture->over || (on->capture != nullptr && on->capture != awaited->capture))
      return w.fault(kErrorCapturedEvent, "cuStreamWaitEvent for an event of another graph");
    on->capture = awaited->capture;  // the stream joins the capture
    return kSuccess;
  }
  if (on->capture != nullptr && awaited->recorded)
    return w.invalidate(*on->capture, kErrorStreamCaptureIsolation,
                        "cuStreamWaitEvent of a capturing stream for work outside of the graph");
  if (!awaited->recorded) return kSuccess;
  Operation wait;
  wait.after.push_back(awaited->point);
  wait.run = [] {};
  on->work.push_back(std::move(wait));
  ++on->queued;
  if (!w.setup.lazy) w.run_until(on, on->queued);
  return w.lost;
}

// --- Events.

Result cuEventCreate(Event* event, unsigned) {
  STAND_IN_ENTER("cuEventCreate");
  auto* made = new EventState();
  made->device = current_context()->device;
  w.events.insert(made);
  *event = reinterpret_cast<Event>(made);
  return kSuccess;
}

Result cuEventDestroy_v2(Event event) {
  STAND_IN_ENTER("cuEventDestroy_v2");
  STAND_IN_EVENT(state, event, "cuEventDestroy");
  w.events.erase(state);
  delete state;
  return kSuccess;
}

Result cuEventRecord(Event event, Stream stream) {
  STAND_IN_ENTER("cuEventRecord");
  STAND_IN_STREAM(on, stream, "cuEventRecord");
  STAND_IN_EVENT(state, event, "cuEventRecord");
  if (state->device != on->device)
    return w.fault(kErrorInvalidHandle, "cuEventRecord: stream and event of different contexts");
  if (const Result bad = w.forbid_implicit_capture(on, "cuEventRecord"); bad != kSuccess)
    return bad;
  state->recorded = true;
  state->capture = on->capture;
  if (on->capture != nullptr) return kSuccess;
  w.enqueue(on, [] {});  // the default stream's wait for the others is part of the point
  state->point = {on, on->queued};
  return w.lost;
}

Result cuEventQuery(Event event) {
  STAND_IN_ENTER("cuEventQuery");
  STAND_IN_EVENT(state, event, "cuEventQuery");
  if (const Result bad = w.forbid_while_capturing("cuEventQuery"); bad != kSuccess) return bad;
  if (state->capture != nullptr)
    return w.fault(kErrorCapturedEvent, "cuEventQuery of an event in a graph");
  if (!state->recorded) return kSuccess;
  if (w.setup.lazy && w.random() % 2 == 0) w.run_until(state->point.stream, state->point.number);
  if (w.lost != kSuccess) return w.lost;
  return state->point.stream->done >= state->point.number ? kSuccess : kErrorNotReady;
}

Result cuEventSynchronize(Event event) {
  STAND_IN_ENTER("cuEventSynchronize");
  STAND_IN_EVENT(state, event, "cuEventSynchronize");
  if (const Result bad = w.forbid_while_capturing("cuEventSynchronize"); bad != kSuccess)
    return bad;
  if (state->capture != nullptr)
    return w.fault(kErrorCapturedEvent, "cuEventSynchronize of an event in a graph");
  if (state->recorded) w.run_until(state->point.stream, state->point.number);
  return w.lost;
}

// --- Graphs.

Result cuStreamIsCapturing(Stream stream, int* status) {
  STAND_IN_ENTER("cuStreamIsCapturing");
  STAND_IN_STREAM(on, stream, "cuStreamIsCapturing");
  if (on == current_context()->default_stream.get())
    for (const StreamState* other : w.blocking_streams(on->device))
      if (other->capture != nullptr) return kErrorStreamCaptureImplicit;
  *status = on->capture == nullptr            ? kCaptureNone
            : on->capture->invalidated ? kCaptureInvalidated
                                       : kCaptureActive;
  return kSuccess;
}

Result cuStreamBeginCapture_v2(Stream stream, int mode) {
  STAND_IN_ENTER("cuStreamBeginCapture_v2");
  STAND_IN_STREAM(on, stream, "cuStreamBeginCapture");
  if (on == current_context()->default_stream.get() || on->capture != nullptr)
    return kErrorStreamCaptureUnsupported;
  on->capture = std::make_shared<GraphState>();
  on->capture->id = w.next_graph++;
  on->capture->origin = on;
  on->capture->mode = mode;
  on->capture->thread = ::gettid();
  return kSuccess;
}

Result cuStreamEndCapture(Stream stream, Graph* graph) {
  STAND_IN_ENTER("cuStreamEndCapture");
  STAND_IN_STREAM(on, stream, "cuStreamEndCapture");
  const std::shared_ptr<GraphState> captured = on->capture;
  *graph = nullptr;
  if (captured == nullptr || captured->origin != on) return 903;  // CAPTURE_UNMATCHED
  if (captured->mode != kCaptureModeRelaxed && captured->thread != ::gettid())
    return w.fault(908, "cuStreamEndCapture on another thread");  // CAPTURE_WRONG_THREAD
  captured->over = true;
  for (StreamState* each : w.all_streams())
    if (each->capture == captured) each->capture = nullptr;
  if (captured->invalidated) return kErrorStreamCaptureInvalidated;
  *graph = reinterpret_cast<Graph>(captured.get());
  w.graphs.emplace(*graph, captured);
  return kSuccess;
}

Result cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, thread_capture_mode());
  return kSuccess;
}

Result cuGraphInstantiateWithFlags(GraphExec* executable, Graph graph, unsigned long long) {
  STAND_IN_ENTER("cuGraphInstantiateWithFlags");
  const auto it = w.graphs.find(graph);
  if (it == w.graphs.end()) return w.fault(kErrorInvalidHandle, "cuGraphInstantiate: no graph");
  auto copy = std::make_shared<GraphState>(*it->second);
  *executable = reinterpret_cast<GraphExec>(copy.get());
  w.executables.emplace(*executable, copy);
  return kSuccess;
}

Result cuGraphLaunch(GraphExec executable, Stream stream) {
  STAND_IN_ENTER("cuGraphLaunch");
  STAND_IN_STREAM(on, stream, "cuGraphLaunch");
  const auto it = w.executables.find(executable);
  if (it == w.executables.end())
    return w.fault(kErrorInvalidHandle, "cuGraphLaunch: no executable graph");
  w.enqueue(on, [graph = it->second] {
    for (const auto& node : graph->nodes) node();
  });
  return w.lost;
}

Result cuGraphExecDestroy(GraphExec executable) {
  STAND_IN_ENTER("cuGraphExecDestroy");
  return w.executables.erase(executable) == 1
             ? kSuccess
             : w.fault(kErrorInvalidHandle, "cuGraphExecDestroy: no executable graph");
}

Result cuGraphDestroy(Graph graph) {
  STAND_IN_ENTER("cuGraphDestroy");
  return w.graphs.erase(graph) == 1
             ? kSuccess
             : w.fault(kErrorInvalidHandle, "cuGraphDestroy: no graph");
}

}  // extern "C"
