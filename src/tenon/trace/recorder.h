// Records what an allocator does as a Trace.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <unordered_map>

#include "tenon/memory/observer.h"
#include "tenon/trace/trace_builder.h"

namespace tenon {

// An observer that turns blocks handed out and taken back into events, with the time since it was
// made. A block that was live before the recording began is allocated at its beginning.
//
//   Recorder recorder("my model");
//   ObserverGuard guard(allocator.observers(), recorder);
//   ...
//   write_csv(recorder.take(), "my_model.csv.zst");
//
// Thread-safe: one mutex. Events reach observers after the allocator's locks are released, so a
// block's next use on another thread may be reported before its free; the free is then put
// before the use. O(1) and about 50 bytes for an event.
class Recorder final : public Observer {
 public:
  explicit Recorder(std::string name);

  void on_memory_event(const MemoryEventInfo& info) override;

  // What was recorded so far; the recorder then starts anew.
  Trace take();

 private:
  void allocated(std::uint64_t address, const MemoryEventInfo& info, std::int64_t time_us);
  void freed(std::uint64_t address, const MemoryEventInfo& info, std::int64_t time_us);

  std::mutex mutex_;
  const std::string name_;
  TraceBuilder builder_;
  std::unordered_map<std::uint64_t, std::uint32_t> late_frees_;  // seen as reuse, not yet as free
  std::uint64_t lost_ = 0;  // events that fitted nothing
  std::chrono::steady_clock::time_point start_;
};

}  // namespace tenon
