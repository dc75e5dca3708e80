#include "tenon/heap/plan.h"

#include <algorithm>

#include "tenon/base/align.h"
#include "tenon/base/error.h"

namespace tenon {

Plan::Plan(std::uint64_t unit_bytes) : unit_bytes_(unit_bytes) {
  if (!is_power_of_two(unit_bytes))
    raise<InvalidArgument>("plan: a unit of {} bytes is no power of two", unit_bytes);
}

void Plan::set_stream(std::uint32_t stream_id, std::vector<PlanSlot> slots,
                      std::size_t loop_begin) {
  if (loop_begin != 0 && loop_begin >= slots.size())
    raise<InvalidArgument>("plan of stream {}: the loop begins at slot {} of {}", stream_id,
                           loop_begin, slots.size());
  StreamPlan plan;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const PlanSlot& slot = slots[i];
    if (slot.size == 0 || slot.size > kMaxRequestBytes || slot.offset > kMaxBytes ||
        !is_aligned(slot.size | slot.offset, unit_bytes_))
      raise<InvalidArgument>(
          "plan of stream {}: slot {} (offset {}, {} bytes) is empty, too large or not in units of "
          "{} bytes", stream_id, i, slot.offset, slot.size, unit_bytes_);
    plan.size_bytes = std::max(plan.size_bytes, slot.offset + slot.size);
  }
  plan.slots = std::move(slots);
  plan.loop_begin = loop_begin;
  streams_[stream_id] = std::move(plan);
}

const StreamPlan* Plan::stream(std::uint32_t stream_id) const {
  const auto found = streams_.find(stream_id);
  return found == streams_.end() ? nullptr : &found->second;
}

std::uint64_t Plan::total_bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [id, plan] : streams_)
    sum = shared_ ? std::max(sum, plan.size_bytes) : sum + plan.size_bytes;
  return sum;
}

}  // namespace tenon
