// When the work that was queued on a stream is over.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tenon/device/backend.h"

namespace tenon {

// A moment of one stream: all work that was queued there before the number was given.
struct Ticket {
  std::uint32_t stream = 0;
  std::uint64_t number = 0;  // 0: before everything, so always complete
};

// Numbers the moments of one stream and finds out which are over: a number is complete when an
// event that was recorded at or after it has completed. A number costs one store; an event is
// recorded only when a caller asks, at most one for a number.
//
//   stream:  work  advance() = 7  work  advance() = 8  record()  work  advance() = 9
//                                                      once that event has completed, 1..8 are
//
// On a device without streams every number is complete at once, and nothing is recorded.
//
// Thread safety: now() may be called from any thread. advance() needs the lock of what the stream
// owns; the other functions need a lock of their own, which may be the same.
// Failure: what the driver throws passes through and changes nothing.
class Completion {
 public:
  static constexpr std::size_t kNoLimit = SIZE_MAX;

  // At most `most_events` events under way are kept. The oldest is forgotten first, so its numbers
  // are complete only when the next event is.
  Completion(Backend& backend, Stream stream, std::size_t most_events = kNoLimit);
  ~Completion();
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  Stream stream() const { return stream_; }

  // --- Numbers.
  // The latest. Work that was queued before a number was given is queued before anything that is
  // queued after the number was read.
  std::uint64_t now() const { return now_.load(std::memory_order_acquire); }
  // A new number: an event that was recorded for an earlier one does not cover it.
  std::uint64_t advance() {
    const std::uint64_t next = now_.load(std::memory_order_relaxed) + 1;
    now_.store(next, std::memory_order_release);
    return next;
  }
  Ticket ticket() { return {stream_.id, advance()}; }

  // --- What is known, without asking the driver.
  bool is_complete(std::uint64_t number) const { return number <= complete_; }
  // Work that is queued on `later` from now on runs after the number.
  bool is_ordered(std::uint64_t number, std::uint32_t later) const {
    return later == stream_.id || is_complete(number) ||
           (later < ordered_.size() && number <= ordered_[later]);
  }
  // The highest number that an event was recorded for.
  std::uint64_t recorded() const { return recorded_; }

  // --- Events.
  // Records an event that covers now(), unless one does.
  void record();
  // The same where a failure may wait for the next call: false, and nothing has changed. Allocates
  // nothing where reserve_event() has been called once for each call of this one.
  bool try_record() noexcept;
  void reserve_event();
  // Asks the driver about the events under way, oldest first.
  void poll();

  // --- The same where the stream takes no event any more, because it was destroyed: these then
  // wait for the device.
  // The highest number known to be complete, after asking; an event for now() is under way then.
  std::uint64_t settled();
  // The host waits for the number.
  void wait(std::uint64_t number);
  // Makes `later` wait for the number, unless it is ordered already.
  void order_before(Stream later, std::uint64_t number);
  // The host waits for all that is queued on the stream.
  void synchronize();
  // The caller knows that the number is complete.
  void set_complete(std::uint64_t number);

  // Makes `later` wait for all work that is queued on `earlier` now.
  static void order_now(Backend& backend, Stream earlier, Stream later);

 private:
  struct Recorded {
    std::uint64_t number;
    Event event;
  };

  // record(); where the stream takes no event any more, waits for the device: all is complete.
  void record_or_wait();
  // The earliest event that covers the number, recorded now if there is none. Null: the number is
  // complete.
  const Recorded* event_for(std::uint64_t number);
  void forget(std::size_t count);

  Backend& backend_;
  const Stream stream_;
  const std::size_t most_events_;
  std::atomic<std::uint64_t> now_{0};
  std::uint64_t complete_ = 0;
  std::uint64_t recorded_ = 0;
  std::size_t reserved_ = 0;              // events that try_record() may be asked for
  std::vector<Recorded> events_;          // by number
  std::vector<std::uint64_t> ordered_;    // by other stream: it runs after the number
};

}  // namespace tenon
