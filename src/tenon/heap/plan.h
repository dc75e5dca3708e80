// Where every allocation of a recorded program will go.
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
struct StreamPlan {
  std::vector<PlanSlot> slots;
  std::uint64_t size_bytes = 0;  // memory that the slots need: the highest end
};

// Offsets computed from a recording, by stream. Plain data: whoever serves from a plan checks each
// request against it (PlanHeap), and a validator that shares no code with any planner (lab/) checks
// it against the recording. Sizes are rounded up to `unit` bytes, offsets are multiples of it.
class Plan {
 public:
  // Requires: a power of two.
  explicit Plan(std::uint64_t unit_bytes = 512);

  // Throws InvalidArgument when a slot is empty, unaligned or overflows.
  void set_stream(std::uint32_t stream_id, std::vector<PlanSlot> slots);
  // Null when the recording had nothing on that stream.
  const StreamPlan* stream(std::uint32_t stream_id) const;

  std::uint64_t unit_bytes() const { return unit_bytes_; }
  std::uint64_t total_bytes() const;  // over all streams
  const std::map<std::uint32_t, StreamPlan>& streams() const { return streams_; }

 private:
  std::uint64_t unit_bytes_;
  std::map<std::uint32_t, StreamPlan> streams_;
};

}  // namespace tenon
