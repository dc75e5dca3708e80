// A driver whose memory can sleep: contents away, addresses kept, physical memory with others.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tenon/device/forwarding_backend.h"

namespace tenon {

// What becomes of the contents.
enum class SleepLevel : std::uint8_t {
  kToHost,  // copied to the host, and back at wake()
  kDrop,    // lost; fresh bytes at wake(): for caches
};

// Stands before another backend and makes each segment of pages at addresses of its own, so that
// any policy over segments (caching, pool, buddy, arena, plan, unified, system) can be put to sleep
// as a whole: what serving engines call sleep mode. One object for each tag; while one sleeps,
// others over the same driver work.
//
//   awake    range -> pages            sleep()   waits for the device, copies, unmaps, releases
//   asleep   range -> nothing          wake()    creates, maps, copies back; the same addresses
//
// While it sleeps, blocks may be freed and new segments may be made (they are awake); contents must
// not be touched, and copy and fill refuse sleeping addresses. It has no virtual memory to hand on:
// expandable and stitched refuse it, since memory that they move has no segment to return to.
//
// Failure: sleep() throws DeviceError with the segment awake; wake() throws OutOfMemory where the
// driver has too little left, with segments that are awake awake and the others asleep, and may be
// called again. Thread-safe: one mutex, held during driver calls.
class SleepingBackend final : public ForwardingBackend {
 public:
  // Requires: `driver` outlives it. Throws InvalidArgument for an empty tag or without virtual
  // memory, and for memory that the host cannot copy (a simulated device without real memory may
  // sleep by kDrop alone).
  SleepingBackend(Backend& driver, std::string tag);
  ~SleepingBackend() override;
  SleepingBackend(const SleepingBackend&) = delete;
  SleepingBackend& operator=(const SleepingBackend&) = delete;

  // Puts all segments to sleep; those that are asleep stay as they are. Returns the bytes that went
  // back to the driver.
  std::uint64_t sleep(SleepLevel level);
  // The same for the segment that contains `address`. Throws InvalidArgument where there is none.
  std::uint64_t sleep_segment(const void* address, SleepLevel level);
  // Returns the bytes that were taken from the driver.
  std::uint64_t wake();

  // The tag; bytes that sleep, that are awake, and on the host.
  const std::string& tag() const { return tag_; }
  std::uint64_t sleeping_bytes() const;
  std::uint64_t awake_bytes() const;
  std::uint64_t host_bytes() const;  // kept on the host for wake()

  // --- Backend.
  std::string description() const override;
  const BackendLimits& limits() const override { return limits_; }
  std::optional<Segment> allocate_segment(std::uint64_t size_bytes, MemoryKind kind) override;
  void free_segment(const Segment& segment) override;
  std::optional<AddressRange> reserve_address(std::uint64_t) override { refuse("reserve_address"); }
  void release_address(AddressRange) override { refuse("release_address"); }
  std::optional<PageHandle> create_pages(std::uint64_t) override { refuse("create_pages"); }
  void release_pages(PageHandle) override { refuse("release_pages"); }
  bool map(std::uintptr_t, PageHandle) override { refuse("map"); }
  bool set_access(std::uintptr_t, std::uint64_t) override { refuse("set_access"); }
  void unmap(std::uintptr_t, PageHandle) override { refuse("unmap"); }
  void copy(void* dest, const void* src, std::uint64_t size_bytes, Stream stream) override;
  void fill(void* dest, std::uint8_t value, std::uint64_t size_bytes, Stream stream) override;

 private:
  struct Piece {
    AddressRange range;
    PageHandle pages;  // id 0: asleep
    std::vector<std::uint8_t> contents;  // while asleep by kToHost
  };

  [[noreturn]] void refuse(const char* call) const;
  bool back(Piece& piece);
  std::uint64_t put_to_sleep(Piece& piece, SleepLevel level);
  void check_awake(const void* address, const char* call) const;
  Piece* find(const void* address);

  const std::string tag_;
  BackendLimits limits_;
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, Piece> pieces_;  // by address
};

// All backends of that tag in the process. sleep throws InvalidArgument for a tag that no backend
// has, naming those there are.
std::uint64_t sleep(const std::string& tag, SleepLevel level);
std::uint64_t wake(const std::string& tag);

}  // namespace tenon
