// What has finished on which stream, and what runs after what: the stream rule's bookkeeping.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
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
// (mark), and, where other streams may take over what this one leaves, every kTicksPerMark ticks:
// then they need not wait for all that the stream has to do until they ask. At most kMaxMarks
// events are kept per stream; the oldest is forgotten first, which only makes its points finish
// later.
//
// Thread safety: a clock is under the lock of its stream's lane, and what takes a Clock needs no
// other; everything else requires that nobody is in any lane. Every function may throw what the
// backend throws; its state is then as before.
class StreamClocks {
 public:
  static constexpr std::uint64_t kTicksPerMark = 64;
  static constexpr std::size_t kMaxMarks = 8;

  struct Mark {
    Event event;
    std::uint64_t tick = 0;
  };
  struct alignas(64) Clock {
    std::uint32_t stream = 0;
    std::uint64_t now = 0;
    std::uint64_t done = 0;    // points up to here have finished
    std::uint64_t marked = 0;  // points up to here are covered by an event
    std::uint64_t mark_due = kTicksPerMark;  // the tick that wants the next event
    std::deque<Mark> marks;    // unfinished as far as is known, oldest first
    // By other stream: this one runs after its points up to here
    std::vector<std::uint64_t> waited;
  };

  explicit StreamClocks(Backend& backend)
      : backend_(backend), has_streams_(backend.limits().has_streams) {}
  ~StreamClocks();
  StreamClocks(const StreamClocks&) = delete;
  StreamClocks& operator=(const StreamClocks&) = delete;

  // The stream's clock, which stays where it is.
  Clock& clock_of(std::uint32_t stream) {
    Clock* clock = find(stream);
    return clock != nullptr ? *clock : add_clock(stream);
  }
  // A new point, after all work that is queued on the stream now.
  static StreamPoint tick(Clock& clock) { return {clock.stream, ++clock.now}; }
  // The same, for a stream that may be new, and with an event if one is due.
  StreamPoint tick(std::uint32_t stream);

  // As far as is known without asking the driver.
  bool is_done(StreamPoint point) const {
    return !has_streams_ || point.tick == 0 || point.tick <= clocks_[point.stream]->done;
  }
  // Work queued on `stream` from now on runs after the point.
  bool is_ordered(StreamPoint point, std::uint32_t stream) const {
    if (point.stream == stream || is_done(point)) return true;
    const Clock* clock = find(stream);
    return clock != nullptr && waited(*clock, point.stream) >= point.tick;
  }

  // Asks the driver about the events of every stream, oldest first.
  void poll();
  static bool is_mark_due(const Clock& clock) { return clock.now >= clock.mark_due; }
  // Nobody would take over anything at present.
  static void put_off_mark(Clock& clock) { clock.mark_due = clock.now + kTicksPerMark; }
  // Somebody might from now on.
  static void expect_mark(Clock& clock) { clock.mark_due = clock.marked + kTicksPerMark; }
  // How many streams there are.
  int count() const { return count_.load(std::memory_order_relaxed); }
  // Records an event that covers all points of the stream.
  void mark(std::uint32_t stream) { mark(clock_of(stream)); }
  // The same where a failure may wait until somebody needs the event.
  void try_mark(Clock& clock) noexcept;
  // Makes the stream wait for the point, unless it is ordered already.
  void order_after(std::uint32_t stream, StreamPoint point);
  // The host waits for the point.
  void wait(StreamPoint point);
  // The host waits for the device.
  void wait_for_all();

 private:
  Clock* find(std::uint32_t stream) const {
    return stream < clocks_.size() ? clocks_[stream].get() : nullptr;
  }
  Clock& add_clock(std::uint32_t stream);
  void mark(Clock& clock);
  static std::uint64_t waited(const Clock& clock, std::uint32_t stream) {
    return stream < clock.waited.size() ? clock.waited[stream] : 0;
  }
  template <typename Visit>
  void for_each(Visit&& visit) {
    for (const auto& clock : clocks_)
      if (clock != nullptr) visit(*clock);
  }
  Stream stream_of(std::uint32_t id) const { return {backend_.device(), id}; }
  const Mark* mark_covering(StreamPoint point);
  void finish(Clock& clock, std::uint64_t tick);

  Backend& backend_;
  const bool has_streams_;
  std::vector<std::unique_ptr<Clock>> clocks_;  // by stream id
  std::atomic<int> count_{0};
};

}  // namespace tenon::unified
