// Records what allocators do, as traces: cheap enough to leave on. Lack of memory for a trace
// throws std::bad_alloc; an event that cannot be kept fails no allocation (observer.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "tenon/base/call_stack.h"
#include "tenon/device/sleeping/sleep_listener.h"
#include "tenon/memory/observer.h"
#include "tenon/trace/address_set.h"
#include "tenon/trace/snapshot.h"

namespace tenon {

// What is kept, and what it costs.
struct RecorderOptions {
  // The newest so many events are kept, 48 bytes each; of those before, what they left live.
  std::size_t capacity_events = std::size_t{1} << 20;
  // Frames of a call stack (0: none), for allocations of at least so many bytes. A stack costs a
  // microsecond or so to walk, and small blocks seldom fill a memory.
  int stack_depth = 0;
  std::uint64_t stack_min_bytes = std::uint64_t{1} << 20;
  // Where to write the recording when an allocation fails, once; empty: nowhere. "%p" in it is the
  // process's number. A forked child puts its own into a path without (file_of_child).
  std::string out_of_memory_path = {};
};

// An observer that keeps blocks handed out and taken back, with time, thread, tag and, if asked to,
// call stack. A block that was live before what is kept is allocated at its beginning.
//
//   Recorder recorder("my model");
//   ObserverGuard guard(allocator.observers(), recorder);
//   ...
//   write_csv(recorder.take(), "my_model.csv.zst");
//
// Events go into a ring buffer as they come. A request for traces makes them of the events and
// finds the names of stacks. One recorder may watch any number of allocators and devices
// (RecordingScope watches all). Each device becomes a trace. To record sleep, it must listen
// (add_sleep_listener; RecordingScope does). Blocks that sleep are freed, and allocated when they
// wake (trace.h). What the allocator does with them meanwhile is left out.
//
// A forked child records its own events: the blocks of the fork are live at its beginning.
//
// Thread-safe: one mutex. Events reach observers after the allocator's locks are released. So a
// block's next use on another thread may be reported before its free. The free is then put before
// the use. O(1) for an event: tens of nanoseconds without stacks (bench_recorder says).
class Recorder final : public Observer, public SleepListener {
 public:
  explicit Recorder(std::string name, RecorderOptions options = {});

  void on_memory_event(const MemoryEventInfo& info) override;
  void on_sleep(const SleepChange& change) override;
  void before_fork() override { mutex_.lock(); }
  void after_fork(bool in_child) override;

  // What was recorded, a trace for each device in order of first use; the recorder then starts
  // anew.
  std::vector<Trace> take_all();
  // The same of a recording of one device: of the one used first; empty without any events.
  Trace take();
  bool is_empty() const;  // without an event of this process
  bool is_child() const;  // forked since the recorder was made
  // What was recorded so far, as traces; it goes on being recorded.
  std::vector<Trace> peek();
  // From here on no failure is written to out_of_memory_path, nor by forked children.
  void keep_no_failure();

 private:
  enum class Kind : std::uint8_t { kAlloc, kFree, kFailure, kToHost, kDropped, kWoke, kGone };
  struct Event {
    std::uint64_t address = 0;
    std::uint64_t size_bytes = 0;
    std::int64_t time_ns = 0;
    std::uint64_t stream = 0;  // of sleep and wake: physical memory, in bytes
    std::uint32_t stack = 0;   // in stacks_
    std::uint32_t tag = 0;     // in tags_
    std::uint32_t thread = 0;
    std::uint16_t device = 0;  // in devices_
    Kind kind = Kind::kAlloc;
  };
  class Maker;  // of traces
  using Block = std::pair<std::uint16_t, std::uint64_t>;  // device, address

  void keep(const Event& event);
  void retire(const Event& event);
  void leave_to_parent();
  std::int64_t now_ns() const;
  std::uint32_t stack_number(std::uint64_t size_bytes);
  std::uint32_t tag_number(const Tag& tag);
  std::uint16_t device_number(Device device);
  std::size_t place_in_ring(std::size_t i) const;  // of the i-th event that is kept
  std::vector<Trace> make();
  void dump_failure();

  mutable std::mutex mutex_;
  const std::string name_;
  RecorderOptions options_;
  std::vector<Event> ring_;
  std::size_t oldest_ = 0;           // once the ring is full
  std::map<Block, Event> before_;    // live when the oldest kept event came
  std::map<std::uint16_t, AddressSet> asleep_before_;  // by device: asleep then
  std::map<CallStack, std::uint32_t> stack_numbers_;
  std::vector<const CallStack*> stacks_;  // number 0: none
  std::map<std::pair<const char*, const char*>, std::uint32_t> tag_numbers_;
  std::vector<Tag> tags_;
  std::set<std::string> sleep_tags_;
  std::vector<Device> devices_;
  std::uint64_t retired_ = 0;  // events that the ring forgot
  bool anything_slept_ = false;
  bool dumped_ = false;
  bool is_child_ = false;      // of fork(2), since the recorder was made
  bool has_parents_ = false;   // ring_ has the parent's events still
  std::chrono::steady_clock::time_point start_;
};

// A small number for the calling thread, from 1.
std::uint32_t recording_thread_number();

}  // namespace tenon
