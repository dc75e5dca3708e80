// What happened, in the words of PyTorch's memory history.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "asking_stack.h"
#include "tenon/memory/observer.h"

namespace tenon::torch {

// The last `max_entries` events, for the device_traces of a snapshot, and who asked for the blocks
// that live: a block from before is nobody's. Thread-safe.
//
// Memory comes and goes as segment_map and segment_unmap, or as segment_alloc and segment_free, and
// never as both on one device: PyTorch's viewer joins neighbours that were mapped, and looks for
// segments that were allocated by their exact addresses.
class EventLog final : public Observer {
 public:
  struct Entry {
    const char* action;
    std::uint64_t address;  // of a failure: what the device had left, as in PyTorch
    std::uint64_t size_bytes;
    Stream stream;
    std::int64_t time_us;  // since 1970
    int stack;             // who asked for it: asking_stack.h
  };

  enum class Memory : bool { kOfPages, kOfSegments };
  // `free_bytes`: what the device has left.
  EventLog(std::size_t max_entries, Memory memory, std::function<std::uint64_t()> free_bytes)
      : max_entries_(max_entries),
        of_pages_(memory == Memory::kOfPages),
        free_bytes_(std::move(free_bytes)) {}

  void on_memory_event(const MemoryEventInfo& info) override {
    switch (info.event) {
      case MemoryEvent::kAllocated:
      case MemoryEvent::kRecycled:
        return add("alloc", info, AskingStack::number());
      case MemoryEvent::kFreed:
        return add_free(info);
      case MemoryEvent::kMapped:
        return add(of_pages_ ? "segment_map" : "segment_alloc", info);
      case MemoryEvent::kUnmapped:
      case MemoryEvent::kReleased:
        return add(of_pages_ ? "segment_unmap" : "segment_free", info);
      case MemoryEvent::kAllocationFailed:
        return add_failure(info);
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
  static Entry entry(const char* action, const MemoryEventInfo& info, int stack = 0) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return {action, reinterpret_cast<std::uintptr_t>(info.data), info.size_bytes, info.stream,
            std::chrono::duration_cast<std::chrono::microseconds>(now).count(), stack};
  }
  void keep(const Entry& entry) {  // under mutex_
    if (entries_.size() >= max_entries_) entries_.pop_front();
    entries_.push_back(entry);
  }
  void add(const char* action, const MemoryEventInfo& info, int stack = 0) {
    const Entry made = entry(action, info, stack);
    const std::lock_guard lock(mutex_);
    keep(made);
    if (stack != 0) stacks_[made.address] = stack;
  }
  // Side by side, as PyTorch's viewer wants them.
  void add_free(const MemoryEventInfo& info) {
    const Entry requested = entry("free_requested", info);
    const std::lock_guard lock(mutex_);
    keep(requested);
    keep(entry("free_completed", info));
    stacks_.erase(requested.address);
  }
  void add_failure(const MemoryEventInfo& info) {
    Entry made = entry("oom", info, AskingStack::number());
    made.address = free_bytes_();
    const std::lock_guard lock(mutex_);
    keep(made);
  }

  const std::size_t max_entries_;
  const bool of_pages_;
  const std::function<std::uint64_t()> free_bytes_;
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;
  std::unordered_map<std::uint64_t, int> stacks_;  // of live blocks, by address
};

}  // namespace tenon::torch
