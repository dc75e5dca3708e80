// Proves by happens-before that memory is never reused or unmapped too early.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "tenon/device/backend.h"

namespace tenon {

// Watches one simulated device for breaches of the stream rule. Order is what the program has
// asked for, never what the clock happened to do, so a schedule that is wrong but lucky is caught.
//
// Each stream has a vector clock with one component per stream. `recorded` snapshots the stream's
// clock, `stream_waited` joins the snapshot into the waiting stream, and what the host knows to
// be finished joins the host's clock, which all work queued later inherits.
//
// Violations, kept as readable text:
//   1. early reuse: two accesses to the same physical bytes for different owners, from streams
//      that nothing orders. Bytes are followed through page handles, wherever they are mapped.
//   2. unmap in use: an address leaves while the host does not know that all work on it is done.
//   3. stray access: to an address that is not mapped, lacks access, or whose segment was freed.
//
// It shares no table with the simulated device's address space. An access costs O(p log p) for p
// pieces of history that it touches. Not thread-safe: SimBackend calls it under its lock.
class OrderChecker {
 public:
  // --- What lies where.
  void segment_allocated(const Segment& segment);
  // The driver has waited for the whole device (free_segment does).
  void segment_freed(const Segment& segment);
  void mapped(std::uintptr_t address, PageHandle pages);
  void access_set(std::uintptr_t address, std::uint64_t size_bytes);
  void unmapped(std::uintptr_t address);

  // --- What is ordered with what.
  void recorded(Stream stream, Event event);
  void stream_waited(Stream stream, Event event);
  void event_destroyed(Event event);
  void host_knows(Event event);   // it has completed, and with it all that came before
  void host_knows(Stream stream); // all work queued on it so far is done
  void host_knows_everything();

  // Work is queued on the stream that reads or writes these bytes for block `owner_id`. Ids are
  // the caller's; a block that is allocated anew needs a new one.
  void access(Stream stream, std::uintptr_t address, std::uint64_t size_bytes,
              std::uint64_t owner_id);

  // The first kMaxViolations of them.
  const std::vector<std::string>& violations() const { return violations_; }
  static constexpr std::size_t kMaxViolations = 100;

 private:
  using Clock = std::vector<std::uint64_t>;  // by stream; missing components are 0

  // One access in the history of some bytes.
  struct Access {
    std::uint64_t owner_id;
    std::uint32_t stream;
    std::uint64_t time;  // the stream's own clock
    friend bool operator==(const Access&, const Access&) = default;
  };
  // The history of bytes [key, end). At most two accesses per stream matter: the last one, and
  // the last one for another owner; work that is ordered after those is ordered after all.
  struct Piece {
    std::uint64_t end;
    std::vector<Access> accesses;
  };
  using History = std::map<std::uint64_t, Piece>;

  // What stands behind addresses [key, key + size_bytes): a segment or one mapped handle.
  struct Placement {
    std::uint64_t size_bytes;
    std::uint64_t memory;     // key into memory_
    bool accessible;
    Clock last_access;        // through this address, by stream
  };
  // Physical memory: a segment's own, or a handle's.
  struct Memory {
    std::uint64_t placements = 0;
    History history;
  };

  static std::uint64_t component(const Clock& clock, std::size_t stream);
  static void raise(Clock& clock, std::size_t stream, std::uint64_t time);
  static void join(Clock& into, const Clock& from);

  Clock& clock_of(Stream stream);
  bool host_knows_of(const Access& access) const;
  static History::iterator split(History& history, std::uint64_t offset);
  void touch(History& history, std::uint64_t begin, std::uint64_t end, const Access& access,
             std::uintptr_t address);
  void compare(const Piece& piece, const Access& access, std::uintptr_t address,
               std::uint64_t size_bytes);
  void remember(Piece& piece, const Access& access) const;
  void remove(std::map<std::uintptr_t, Placement>::iterator placement);
  void report(std::string text);

  std::vector<Clock> clocks_;  // by stream
  Clock host_clock_;
  std::unordered_map<std::uint64_t, Clock> events_;
  std::map<std::uintptr_t, Placement> placements_;
  std::unordered_map<std::uint64_t, Memory> memory_;
  std::vector<std::string> violations_;
};

}  // namespace tenon
