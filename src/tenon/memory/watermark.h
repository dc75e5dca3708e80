// When memory counts as short, and who is asked to give some back. O(1), relieve O(callbacks).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <vector>

namespace tenon {

// Two marks on the memory that an allocator holds, as ratios of the device's recommended working
// set. Above the low one it collects what it does not need; above the high one it does not go.
//
//   0 ........ low ............ high
//   | cache     | collect caches | evict, ask others, then out of memory
//
// A ratio of 0 turns a mark off: its limit is then kNoLimit. Lowering the high mark below the low
// one takes that with it. Thread-safe; reading a limit is one relaxed load.
class Watermarks {
 public:
  static constexpr double kDefaultHighRatio = 1.7;
  static constexpr double kDefaultLowRatio = 1.4;
  static constexpr double kMaxRatio = 2.0;
  static constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

  // A working set of 0 bytes means that nothing is recommended: both marks are then off.
  explicit Watermarks(std::uint64_t recommended_bytes);
  Watermarks(const Watermarks&) = delete;
  Watermarks& operator=(const Watermarks&) = delete;

  // Throw InvalidArgument, and change nothing, unless 0 <= ratio <= 2; the low one also when it
  // would lie above a high mark that is on.
  void set_high_ratio(double ratio);
  void set_low_ratio(double ratio);

  // The ratios, the limits in bytes that follow, and what they are ratios of.
  double high_ratio() const { return high_ratio_.load(std::memory_order_relaxed); }
  double low_ratio() const { return low_ratio_.load(std::memory_order_relaxed); }
  std::uint64_t high_limit_bytes() const { return high_limit_.load(std::memory_order_relaxed); }
  std::uint64_t low_limit_bytes() const { return low_limit_.load(std::memory_order_relaxed); }
  std::uint64_t recommended_bytes() const { return recommended_bytes_; }

  // How many bytes are left below the mark when `held_bytes` are held; negative above it.
  std::int64_t low_headroom_bytes(std::uint64_t held_bytes) const {
    return headroom(low_limit_bytes(), held_bytes);
  }
  // As low_headroom_bytes, of the high mark.
  std::int64_t high_headroom_bytes(std::uint64_t held_bytes) const {
    return headroom(high_limit_bytes(), held_bytes);
  }

 private:
  static std::int64_t headroom(std::uint64_t limit_bytes, std::uint64_t held_bytes);
  std::uint64_t limit_of(double ratio) const;

  const std::uint64_t recommended_bytes_;
  std::mutex mutex_;  // of the setters
  std::atomic<double> high_ratio_{kDefaultHighRatio};
  std::atomic<double> low_ratio_{kDefaultLowRatio};
  std::atomic<std::uint64_t> high_limit_{kNoLimit};
  std::atomic<std::uint64_t> low_limit_{kNoLimit};
};

// What can give memory back when it is short: caches above an allocator, a garbage collector.
//
// An allocator calls relieve() with no lock of its own held, then tries its request again.
// Callbacks run in the order they were added. They may free, and even allocate, on the same
// allocator: a relief inside a relief of the same thread does nothing. An exception that leaves a
// callback is swallowed and counted. Thread-safe; remove() waits for a relief on another thread.
class PressureCallbacks {
 public:
  // Gets the number of bytes wanted; returns how many it released, as far as it knows.
  using Callback = std::function<std::uint64_t(std::uint64_t wanted_bytes)>;
  using Id = std::uint64_t;

  // Returns the name for remove().
  Id add(Callback callback);
  void remove(Id id);  // nothing happens when it is not there

  // What a relief gave.
  struct Relief {
    std::uint64_t freed_bytes = 0;  // as the callbacks say
    int called = 0;                 // how many ran, those that failed included
  };
  // Stops once as much as wanted was released.
  Relief relieve(std::uint64_t wanted_bytes);

  // Whether there are none, and how many exceptions left callbacks.
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }
  std::uint64_t errors() const { return errors_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    Id id = 0;
    Callback callback;
  };

  std::recursive_mutex mutex_;  // held while callbacks run: one may remove itself
  std::vector<Entry> entries_;
  Id next_id_ = 1;
  bool relieving_ = false;      // under mutex_, so by this thread
  std::atomic<int> count_{0};
  std::atomic<std::uint64_t> errors_{0};
};

}  // namespace tenon
