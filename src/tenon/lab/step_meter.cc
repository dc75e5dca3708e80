#include "tenon/lab/step_meter.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "tenon/memory/tag.h"

namespace tenon {

DataPtr StepMeter::allocate(std::size_t size_bytes) {
  if (size_bytes == 0) return DataPtr(policy_.device());
  DataPtr inner = arena_ != nullptr ? arena_->allocate(size_bytes) : device_->allocate(size_bytes);
  const std::uint64_t offset =
      arena_ != nullptr ? arena_->layout_offset(inner) : device_->layout_offset(inner);
  void* const data = inner.get();
  const Device device = inner.device();
  const Tag tag = current_tag();
  const std::lock_guard lock(lock_);
  if (free_records_.empty()) {
    constexpr std::size_t kRecords = 256;
    record_blocks_.push_back(std::make_unique<Record[]>(kRecords));
    free_records_.reserve(record_blocks_.size() * kRecords);
    for (std::size_t i = kRecords; i > 0; --i)
      free_records_.push_back(&record_blocks_.back()[i - 1]);
  }
  Record* record = free_records_.back();
  free_records_.pop_back();
  *record = {this, nullptr, inner.get_deleter(), size_bytes,
             static_cast<std::uint32_t>(allocations_), recording_};
  record->context = inner.release_context();
  layout_.add(allocations_++);
  layout_.add(offset);
  live_bytes_ += size_bytes;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  if (recording_)
    note({StepEvent::Kind::kAlloc, record->block, size_bytes, tag.phase, tag.call_site, 0});
  return DataPtr(data, record, &drop, device);
}

void StepMeter::drop(void* context) {
  auto* record = static_cast<Record*>(context);
  StepMeter& self = *record->owner;
  void* const inner = record->context;
  const DeleterFn deleter = record->deleter;
  {
    const std::lock_guard lock(self.lock_);
    self.live_bytes_ -= record->size_bytes;
    if (self.recording_ && record->recorded)
      self.note({StepEvent::Kind::kFree, record->block, record->size_bytes, nullptr, nullptr, 0});
    self.free_records_.push_back(record);
  }
  if (deleter != nullptr && inner != nullptr) deleter(inner);
}

// Under the lock, so that times rise.
void StepMeter::note(StepEvent event) {
  event.time_us = std::chrono::duration_cast<std::chrono::microseconds>(
                      std::chrono::steady_clock::now() - start_)
                      .count();
  events_.push_back(event);
}

void StepMeter::mark(StepEvent::Kind end_of_pass) {
  const std::lock_guard lock(lock_);
  if (recording_) note({end_of_pass, 0, 0, nullptr, nullptr, 0});
}

void StepMeter::record(bool on) {
  const std::lock_guard lock(lock_);
  recording_ = on;
}

std::vector<StepEvent> StepMeter::take_events() {
  const std::lock_guard lock(lock_);
  return std::exchange(events_, {});
}

std::uint64_t StepMeter::live_bytes() const {
  const std::lock_guard lock(lock_);
  return live_bytes_;
}
std::uint64_t StepMeter::peak_bytes() const {
  const std::lock_guard lock(lock_);
  return peak_bytes_;
}
std::uint64_t StepMeter::allocations() const {
  const std::lock_guard lock(lock_);
  return allocations_;
}
std::uint64_t StepMeter::layout_hash() const {
  const std::lock_guard lock(lock_);
  return layout_.value();
}

}  // namespace tenon
