// What sleeping memory tells those who listen: recorders, logs. The only error is lack of memory
// when a listener is added (std::bad_alloc). A report takes O(listeners).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/device/device.h"

namespace tenon {

// What becomes of the contents of memory that sleeps.
enum class SleepLevel : std::uint8_t {
  kToHost,  // copied to the host, and back at wake()
  kDrop,    // lost; fresh bytes at wake(): for caches
};

// Memory that fell asleep, woke, or left its addresses asleep. What an allocator maps elsewhere
// while it sleeps is asleep there too: a change without memory.
struct SleepChange {
  // What became of the memory.
  enum class What : std::uint8_t { kToHost, kDropped, kWoke, kGone };
  // Addresses, and the physical memory that left them or came back. Pages that are mapped at
  // several addresses count at the first.
  struct Piece {
    std::uintptr_t base = 0;  // 0: mapped nowhere
    std::uint64_t size_bytes = 0;
    std::uint64_t memory_bytes = 0;
  };
  What what = What::kToHost;
  Device device;
  std::string tag;
  std::vector<Piece> pieces;  // by address; neighbours are joined
};

// Called on the thread that made the change, after it and without the memory's lock. For kGone and
// changes without memory, the allocator's locks may be held. So it must not allocate from memory
// that sleeps, nor make, end or put to sleep any. An exception is swallowed.
class SleepListener {
 public:
  virtual ~SleepListener() = default;
  // The change, once it has happened.
  virtual void on_sleep(const SleepChange& change) = 0;
};

// For all tags of the process. The listener must outlive its listening; remove waits until no call
// into it is in progress. Thread-safe.
void add_sleep_listener(SleepListener* listener);
void remove_sleep_listener(SleepListener* listener);
// Tells them all.
void report_sleep(const SleepChange& change);

}  // namespace tenon
