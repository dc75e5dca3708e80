// Where every allocation of a recorded program will go. Thread-safe while no thread calls
// set_stream or set_shared. Setting a stream is O(slots), finding one O(log streams).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace tenon {

// One allocation's place, relative to the start of its stream's memory.
struct PlanSlot {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;  // a multiple of the plan's unit
};

// One stream's part: its i-th allocation (requests of zero bytes do not count) takes slots[i].
// After the last slot come those from loop_begin on again, any number of times.
struct StreamPlan {
  std::vector<PlanSlot> slots;
  std::uint64_t size_bytes = 0;  // memory that the slots need: the highest end
  std::size_t loop_begin = 0;    // 0: the whole plan repeats

  // The slot of the stream's allocation `number`, from 0. Requires: slots.
  std::size_t slot_of(std::uint64_t number) const {
    if (number < slots.size()) return static_cast<std::size_t>(number);
    return loop_begin +
           static_cast<std::size_t>((number - loop_begin) % (slots.size() - loop_begin));
  }
};

// Offsets computed from a recording, by stream. Plain data. PlanHeap checks each request against
// the plan. A validator that shares no code with any planner (lab/) checks the plan against the
// recording. Sizes are rounded up to `unit` bytes, offsets are multiples of it.
//
// Each stream has memory of its own, or all of them share one range. Streams that share must be
// made to wait for each other where one takes over what another has left.
class Plan {
 public:
  // Requires: a power of two.
  explicit Plan(std::uint64_t unit_bytes = 512);

  // Where the last slot of a stream may begin: the ranges of 4,096 streams still add up.
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 51;

  // Throws InvalidArgument when a slot is empty, unaligned or overflows, or the loop does not begin
  // at a slot.
  void set_stream(std::uint32_t stream_id, std::vector<PlanSlot> slots, std::size_t loop_begin = 0);
  // Null when the recording had nothing on that stream.
  const StreamPlan* stream(std::uint32_t stream_id) const;

  // What sizes are rounded to; bytes of all streams' ranges (of the one, where they share it).
  std::uint64_t unit_bytes() const { return unit_bytes_; }
  std::uint64_t total_bytes() const;  // over all streams
  // Whether all streams share one range.
  bool shared() const { return shared_; }
  void set_shared(bool shared) { shared_ = shared; }
  // All streams by id.
  const std::map<std::uint32_t, StreamPlan>& streams() const { return streams_; }

 private:
  std::uint64_t unit_bytes_;
  bool shared_ = false;
  std::map<std::uint32_t, StreamPlan> streams_;
};

}  // namespace tenon
