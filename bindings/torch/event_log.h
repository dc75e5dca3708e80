// What happened, in the words of PyTorch's memory history.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "asking_stack.h"
#include "tenon/memory/observer.h"

namespace tenon::torch {

// The last `max_entries` events, for the device_traces of a snapshot, and who asked for the blocks
// that live: a block from before is nobody's. Thread-safe.
class EventLog final : public Observer {
 public:
  struct Entry {
    const char* action;
    std::uint64_t address;
    std::uint64_t size_bytes;
    Stream stream;
    std::int64_t time_us;  // since 1970
    int stack;             // who asked for it: asking_stack.h
  };

  explicit EventLog(std::size_t max_entries) : max_entries_(max_entries) {}

  void on_memory_event(const MemoryEventInfo& info) override {
    switch (info.event) {
      case MemoryEvent::kAllocated:
      case MemoryEvent::kRecycled:
        return add("alloc", info, AskingStack::number());
      case MemoryEvent::kFreed:
        add("free_requested", info);
        return add("free_completed", info);
      case MemoryEvent::kMapped:
        return add("segment_map", info);
      case MemoryEvent::kUnmapped:
        return add("segment_unmap", info);
      case MemoryEvent::kReleased:
        return add("segment_free", info);
      case MemoryEvent::kAllocationFailed:
        return add("oom", info, AskingStack::number());
    }
  }

  // Who asked for the live block; 0: not known.
  int stack_of(std::uint64_t address) const {
    const std::lock_guard lock(mutex_);
    const auto found = stacks_.find(address);
    return found == stacks_.end() ? 0 : found->second;
  }

  std::vector<Entry> entries() const {
    const std::lock_guard lock(mutex_);
    return {entries_.begin(), entries_.end()};
  }

 private:
  void add(const char* action, const MemoryEventInfo& info, int stack = 0) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto address = reinterpret_cast<std::uintptr_t>(info.data);
    const std::lock_guard lock(mutex_);
    if (entries_.size() >= max_entries_) entries_.pop_front();
    entries_.push_back({action, address, info.size_bytes, info.stream,
                        std::chrono::duration_cast<std::chrono::microseconds>(now).count(),
                        stack});
    if (info.event == MemoryEvent::kFreed)
      stacks_.erase(address);
    else if (stack != 0 && address != 0)
      stacks_[address] = stack;
  }

  const std::size_t max_entries_;
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;
  std::unordered_map<std::uint64_t, int> stacks_;  // of live blocks, by address
};

}  // namespace tenon::torch
