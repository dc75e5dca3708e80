// Events that every allocator reports alike; recording, logging and profiling are observers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tenon/device/device.h"
#include "tenon/memory/tag.h"

namespace tenon {

// What happened.
enum class MemoryEvent : std::uint8_t {
  kAllocated,         // a block from fresh driver memory
  kRecycled,          // a block from memory that was held already
  kFreed,             // a block was freed
  kReleased,          // memory went back to the driver
  kMapped,            // memory given to an address, where blocks may be placed from now on
  kUnmapped,          // memory taken from an address: no block is placed there any more
  kAllocationFailed,  // a request that could not be met
};

// One event.
struct MemoryEventInfo {
  MemoryEvent event = MemoryEvent::kAllocated;
  void* data = nullptr;           // the block, segment or mapping; null for a failure
  std::uint64_t size_bytes = 0;   // requested size for blocks, real size for memory
  Stream stream;
  Tag tag;                        // of the thread that caused it
};

// Called on the thread that allocates or frees, after the allocator's state is consistent again and
// without its locks. So an observer may allocate. An exception that leaves the observer is
// swallowed and counted (ObserverList::errors): an allocation does not fail because its log did.
class Observer {
 public:
  virtual ~Observer() = default;
  // Called for each event; must be thread-safe where several threads allocate.
  virtual void on_memory_event(const MemoryEventInfo& info) = 0;
  // Around fork(2), on the thread that forks, where HostThread watches forks. In between, no other
  // thread is in on_memory_event; so that must not wait for a thread that forks.
  virtual void before_fork() {}
  virtual void after_fork([[maybe_unused]] bool in_child) {}
};

// Around fork(2). The first takes the locks of all lists, then calls before_fork of each observer
// once; the second undoes this in reverse order.
void observers_before_fork();
void observers_after_fork(bool in_child);

// The observers of one allocator. Adding and removing locks. Remove waits until no call into the
// observer is in progress on another thread. A report is O(observers), with none one relaxed load.
class ObserverList {
 public:
  ObserverList();
  ~ObserverList();
  ObserverList(const ObserverList&) = delete;
  ObserverList& operator=(const ObserverList&) = delete;

  // The observer must outlive its watching.
  void add(Observer* observer);
  void remove(Observer* observer);  // nothing happens when it is not there
  // For an allocator behind another, whose observer passes events on to `front`. With two locks a
  // thread that comes from the front and one from behind could wait for each other. Requires: no
  // other thread uses this list now. Observers of all allocators then watch the front one alone.
  void share_lock(ObserverList& front);
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }

  // Tells every observer, on the calling thread. Requires: no lock of the allocator is held.
  void report(MemoryEvent event, void* data, std::uint64_t size_bytes, Stream stream) {
    if (empty()) [[likely]] return;
    report_slow({event, data, size_bytes, stream, current_tag()});
  }

  // Runs `reports`, which calls report(), so that no other thread's report comes in between.
  template <typename Reports>
  void report_together(Reports&& reports) {
    const std::lock_guard lock(*mutex_);
    reports();
  }

  // For an observer of all allocators: those there are and those that will be made. Otherwise as
  // add and remove.
  static void add_to_all(Observer* observer);
  static void remove_from_all(Observer* observer);

  // Exceptions that left observers.
  std::uint64_t errors() const { return errors_.load(std::memory_order_relaxed); }

 private:
  friend void observers_before_fork();
  friend void observers_after_fork(bool in_child);
  struct All;
  void report_slow(const MemoryEventInfo& info);

  std::atomic<int> count_{0};
  std::atomic<std::uint64_t> errors_{0};
  // Held while observers run: they may allocate, and so report again.
  std::shared_ptr<std::recursive_mutex> mutex_ = std::make_shared<std::recursive_mutex>();
  std::vector<Observer*> observers_;
  bool in_front_ = true;  // not behind another allocator
};

// Adds an observer to a list for as long as it lives.
class ObserverGuard {
 public:
  ObserverGuard(ObserverList& list, Observer& observer) : list_(list), observer_(observer) {
    list_.add(&observer_);
  }
  ~ObserverGuard() { list_.remove(&observer_); }
  ObserverGuard(const ObserverGuard&) = delete;
  ObserverGuard& operator=(const ObserverGuard&) = delete;

 private:
  ObserverList& list_;
  Observer& observer_;
};

}  // namespace tenon
