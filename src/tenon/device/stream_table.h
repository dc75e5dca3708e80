// Streams and events of a device that has no driver to keep them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/device/backend.h"

namespace tenon {

// When each stream's work is finished, on a clock that its owner reads. Work queued at time t is
// finished at t + lag, and not before what its stream was made to wait for. An event is finished
// when all work queued on its stream before it is. Where nothing is ever queued, as on the host,
// everything is always finished. Streams and events that do not exist (any more) are refused with
// DeviceError. O(1). Not thread-safe.
class StreamTable {
 public:
  StreamTable(Device device, std::uint64_t lag_ns) : device_(device), lag_ns_(lag_ns) {}

  // Work queued now ends at now_ns + lag, or later where its stream waits.
  void queue_work(Stream stream, std::uint64_t now_ns);
  // A new stream; numbers are dense. One that takes the number of a destroyed stream runs after it.
  Stream create_stream();
  // Its queued work still runs to its end.
  void destroy_stream(Stream stream);

  // A point behind all work of the stream, a stream made to wait for one, and its end.
  Event record(Stream stream);
  void stream_wait(Stream stream, Event event);
  void destroy_event(Event event);

  // When it will be finished; a time in the past if it is.
  std::uint64_t finish_ns(const char* call, Event event) const;
  std::uint64_t finish_ns(const char* call, Stream stream) const;
  std::uint64_t device_finish_ns() const { return device_finish_ns_; }

 private:
  struct StreamState {
    std::uint64_t finish_ns = 0;  // of all work queued so far
    bool exists = true;
  };
  // A slot is used again after destroy_event; the generation tells its events apart.
  struct EventState {
    std::uint64_t finish_ns = 0;
    std::uint32_t generation = 0;
    bool exists = false;
  };

  std::size_t require(const char* call, Stream stream) const;
  std::size_t require(const char* call, Event event) const;

  Device device_;
  std::uint64_t lag_ns_;
  std::uint64_t device_finish_ns_ = 0;
  std::vector<StreamState> streams_ = std::vector<StreamState>(1);  // the default stream
  std::vector<std::uint32_t> free_streams_;
  std::vector<EventState> events_;
  std::vector<std::uint32_t> free_events_;
};

}  // namespace tenon
