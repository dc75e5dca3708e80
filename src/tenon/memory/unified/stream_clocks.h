// What has finished on which stream, and what runs after what: the stream rule's bookkeeping.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "tenon/device/backend.h"

namespace tenon::unified {

// A place in one stream's queue: everything queued there before the tick that gave it.
struct StreamPoint {
  std::uint32_t stream = 0;
  std::uint64_t tick = 0;  // 0: before everything, so always finished
};

// Counts each stream's ticks and relates them to the few events that are really recorded.
//
//   stream 1:  work  tick 7  work  tick 8  EVENT(8)  work  tick 9
//              an event at 8 that has finished finishes points 1..8 of stream 1
//
// An event is recorded when somebody must wait for a point that none covers yet, when a caller asks
// (mark), and, once the program uses several streams, every kTicksPerMark ticks. Programs with one
// stream record none. At most kMaxMarks events are kept per stream; the oldest is forgotten first,
// which only makes its points finish later.
//
// Not thread-safe: the allocator's lock covers it. Every function may throw what the backend
// throws; its state is then as before. tick() throws nothing: its events are a convenience.
class StreamClocks {
 public:
  static constexpr std::uint64_t kTicksPerMark = 64;
  static constexpr std::size_t kMaxMarks = 8;

  explicit StreamClocks(Backend& backend)
      : backend_(backend), has_streams_(backend.limits().has_streams) {}
  ~StreamClocks();
  StreamClocks(const StreamClocks&) = delete;
  StreamClocks& operator=(const StreamClocks&) = delete;

  // A new point, after all work that is queued on the stream now.
  StreamPoint tick(std::uint32_t stream) {
    Clock& clock = clock_of(stream);
    if (++clock.now - clock.marked >= kTicksPerMark && clocks_.size() > 1) [[unlikely]]
      try_mark(stream);
    return {stream, clock.now};
  }
  // The stream's last point.
  StreamPoint now(std::uint32_t stream) { return {stream, clock_of(stream).now}; }

  // As far as is known without asking the driver.
  bool is_done(StreamPoint point) const {
    return !has_streams_ || point.tick == 0 || point.tick <= clocks_[point.stream].done;
  }
  // Work queued on `stream` from now on runs after the point.
  bool is_ordered(StreamPoint point, std::uint32_t stream) const {
    return point.stream == stream || is_done(point) ||
           (stream < clocks_.size() && waited(clocks_[stream], point.stream) >= point.tick);
  }

  // Asks the driver about the events of every stream, oldest first.
  void poll();
  // Records an event that covers all points of the stream.
  void mark(std::uint32_t stream);
  // The same where a failure may wait until somebody needs the event.
  void try_mark(std::uint32_t stream) noexcept;
  // Makes the stream wait for the point, unless it is ordered already.
  void order_after(std::uint32_t stream, StreamPoint point);
  // The host waits for the point.
  void wait(StreamPoint point);
  // The host waits for the device.
  void wait_for_all();

 private:
  struct Mark {
    Event event;
    std::uint64_t tick = 0;
  };
  struct Clock {
    std::uint64_t now = 0;
    std::uint64_t done = 0;    // points up to here have finished
    std::uint64_t marked = 0;  // points up to here are covered by an event
    std::deque<Mark> marks;    // unfinished as far as is known, oldest first
    // By other stream: this one runs after its points up to here
    std::vector<std::uint64_t> waited;
  };

  Clock& clock_of(std::uint32_t stream) {
    if (stream >= clocks_.size()) [[unlikely]] clocks_.resize(stream + 1);
    return clocks_[stream];
  }
  static std::uint64_t waited(const Clock& clock, std::uint32_t stream) {
    return stream < clock.waited.size() ? clock.waited[stream] : 0;
  }
  Stream stream_of(std::uint32_t id) const { return {backend_.device(), id}; }
  const Mark* mark_covering(StreamPoint point);
  void finish(Clock& clock, std::uint64_t tick);

  Backend& backend_;
  const bool has_streams_;
  std::vector<Clock> clocks_;
};

}  // namespace tenon::unified
