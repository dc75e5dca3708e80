// Makes a Trace out of events that name their blocks by any number: an id, or an address. Faults
// are values; the only error is lack of memory (std::bad_alloc).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tenon/trace/trace.h"

namespace tenon {

// What is wrong with an event. The event is then left out; the builder goes on.
enum class TraceFault : std::uint8_t {
  kNone,
  kLiveAlready,     // alloc of a key that is in use
  kUnknown,         // free of a key that was never allocated
  kFreedAlready,    // free of a key whose block was freed
  kRequestedTwice,  // free_requested, twice
  kTooLarge,        // a size above kMaxRequestBytes
  kTooMuch,         // more live bytes, blocks or streams than can be counted
};

// Checks events as they come and gives each allocation a block number of its own. So a key may be
// used again once its block was freed. Streams become dense numbers in order of first use. The
// caller decides what a fault means: an error in a CSV file, a block from before the recording in a
// snapshot (live_from_start). O(1) per event. Not thread-safe.
class TraceBuilder {
 public:
  // What the keys of events are.
  enum class Keys : std::uint8_t { kIds, kAddresses };  // addresses are kept in the trace

  explicit TraceBuilder(std::string name, Keys keys = Keys::kIds) : keys_(keys) {
    trace_.name = std::move(name);
  }

  // A block of `size_bytes` that is `key` until it is freed.
  TraceFault alloc(std::uint64_t key, std::int64_t time_us, std::uint64_t size_bytes,
                   std::uint64_t stream, std::uint32_t site = 0);
  // op: one of the two frees. Size and stream are the block's own.
  TraceFault free(TraceOp op, std::uint64_t key, std::int64_t time_us, std::uint32_t site = 0);
  // A block that was there before the first event: it is allocated before everything else, at the
  // time of the first event.
  TraceFault live_from_start(std::uint64_t key, std::uint64_t size_bytes, std::uint64_t stream,
                             std::uint32_t site = 0);
  // `mark.event` is set to the events so far.
  void mark(TraceMark mark);
  // The same, where the mark's time says where among the events it belongs.
  void mark_by_time(const TraceMark& mark) { timed_marks_.push_back(mark); }

  // Whether the key was ever named by an event that was taken.
  bool knows(std::uint64_t key) const { return blocks_.count(key) != 0; }
  std::size_t events() const { return trace_.events.size(); }
  // Events whose time lies before that of the event before them.
  std::uint64_t backward_steps() const { return backward_steps_; }
  void warn(std::string text) { trace_.warnings.push_back(std::move(text)); }

  // Ends the building; `sites` is what the numbers of sites and texts given before refer to.
  Trace finish(std::shared_ptr<const SiteTable> sites = Trace::empty_sites());

 private:
  enum class State : std::uint8_t { kLive, kRequested, kFreed };
  struct Known {
    std::uint64_t size_bytes = 0;
    std::uint32_t block = 0;
    std::uint32_t stream = 0;
    State state = State::kLive;
  };
  TraceFault begin(std::vector<TraceEvent>& where, std::uint64_t key, std::int64_t time_us,
                   std::uint64_t size_bytes, std::uint64_t stream, std::uint32_t site);
  void place_timed_marks();
  void put_early_blocks_first();
  bool dense_stream(std::uint64_t stream, std::uint32_t& out);
  void note_time(std::int64_t time_us);

  Keys keys_;
  Trace trace_;
  std::vector<TraceEvent> from_start_;
  std::vector<std::uint64_t> early_addresses_;
  std::vector<TraceMark> timed_marks_;
  std::unordered_map<std::uint64_t, Known> blocks_;
  std::unordered_map<std::uint64_t, std::uint32_t> streams_;
  std::uint64_t last_stream_ = 0;        // the stream seen last, and its number: the usual case
  std::uint32_t last_stream_index_ = 0;
  std::uint64_t total_bytes_ = 0;        // an upper bound of what is live
  std::uint64_t backward_steps_ = 0;
  std::int64_t latest_us_ = 0;
};

}  // namespace tenon
