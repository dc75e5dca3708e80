// Watches the tensors of a training run, whatever serves them. Failure: that of the allocator in
// use, and std::bad_alloc for a record. O(1) beside that allocator.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "tenon/base/hash.h"
#include "tenon/base/spin_lock.h"
#include "tenon/lab/step_profile.h"
#include "tenon/memory/allocator.h"
#include "tenon/memory/device_allocator.h"
#include "tenon/memory/scopes/scope_arena.h"

namespace tenon {

// Stands before the allocator in use and counts every block that a program's tensors request. That
// allocator may change between blocks (a policy outside a step, a scope's arena inside). While it
// records, it keeps each event with its tag. Unlike an observer of the policy it sees into arenas.
//
// A block goes back to where it came from. Thread-safe; costs one short spin lock and a record of
// 40 bytes for a block, from a slab. Blocks must be gone before the meter, and the meter before the
// allocators.
class StepMeter final : public Allocator {
 public:
  explicit StepMeter(DeviceAllocator& policy) : policy_(policy), device_(&policy) {}

  DataPtr allocate(std::size_t size_bytes) override;
  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
    policy_.copy_data(dest, src, size_bytes);
  }

  // Where requests go from now on; at first to the policy.
  void serve_from(ScopeArena& arena) { arena_ = &arena; }
  void serve_from(DeviceAllocator& allocator) {
    arena_ = nullptr;
    device_ = &allocator;
  }

  // Bytes as asked for.
  std::uint64_t live_bytes() const;
  std::uint64_t peak_bytes() const;
  std::uint64_t allocations() const;
  // Over every block's number and place within its stream's range: the layout hash.
  std::uint64_t layout_hash() const;

  // --- Recording. Blocks that live when it begins are not in it unless it began with the meter.
  void record(bool on);
  void mark(StepEvent::Kind end_of_pass);
  const std::vector<StepEvent>& events() const { return events_; }
  std::vector<StepEvent> take_events();

 private:
  struct Record {
    StepMeter* owner = nullptr;
    void* context = nullptr;  // what the deleter below must be given
    DeleterFn deleter = nullptr;
    std::uint64_t size_bytes = 0;
    std::uint32_t block = 0;
    bool recorded = false;
  };

  static void drop(void* context);
  void note(StepEvent event);

  DeviceAllocator& policy_;
  DeviceAllocator* device_;
  ScopeArena* arena_ = nullptr;  // goes before device_
  mutable SpinLock lock_;
  std::vector<Record*> free_records_;
  std::vector<std::unique_ptr<Record[]>> record_blocks_;
  std::uint64_t live_bytes_ = 0;
  std::uint64_t peak_bytes_ = 0;
  std::uint64_t allocations_ = 0;
  RunningHash layout_;
  bool recording_ = false;
  std::vector<StepEvent> events_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace tenon
