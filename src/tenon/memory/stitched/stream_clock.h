// When the work of one stream is known to be over.
#pragma once

#include <cstdint>
#include <deque>

#include "tenon/device/backend.h"

namespace tenon {

// Turns a stream's sequence numbers into settled ones: a number n is settled when an event recorded
// at or after n has completed. Events are recorded only when asked for, never one per free. Not
// thread-safe (the device lock).
class StreamClock {
 public:
  StreamClock(Backend& backend, Stream stream) : backend_(backend), stream_(stream) {}
  ~StreamClock() {
    for (const Recorded& r : events_)
      ignore_refusal([&] { backend_.destroy_event(r.event); });
  }
  StreamClock(const StreamClock&) = delete;
  StreamClock& operator=(const StreamClock&) = delete;

  // The highest number known to be settled. `now` is the stream's present number; an event for it
  // is under way afterwards.
  std::uint64_t settled(std::uint64_t now) {
    poll();
    if (now > settled_ && (events_.empty() || events_.back().number < now)) {
      events_.push_back({now, backend_.record(stream_)});
      poll();
    }
    return settled_;
  }
  // Makes `other` wait for the work up to `number`; the host goes on.
  void let_wait(Stream other, std::uint64_t number, std::uint64_t now) {
    if (settled(now) < number) backend_.stream_wait(other, event_for(number));
  }
  // The host waits for it.
  void wait(std::uint64_t number, std::uint64_t now) {
    if (settled(now) >= number) return;
    backend_.wait(event_for(number));
    poll();
  }

 private:
  struct Recorded {
    std::uint64_t number;
    Event event;
  };

  Event event_for(std::uint64_t number) const {
    for (const Recorded& r : events_)
      if (r.number >= number) return r.event;
    return {};
  }
  void poll() {
    while (!events_.empty() && backend_.query(events_.front().event)) {
      settled_ = events_.front().number;
      backend_.destroy_event(events_.front().event);
      events_.pop_front();
    }
  }

  Backend& backend_;
  const Stream stream_;
  std::uint64_t settled_ = 0;
  std::deque<Recorded> events_;  // by number
};

}  // namespace tenon
