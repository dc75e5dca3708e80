// The machine's own memory. Errors: as Backend says (backend.h). Memory beyond the limit is an
// empty result; any other failure is a DeviceError. A call is O(log n) beside the system.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "tenon/device/address_table.h"
#include "tenon/device/backend.h"
#include "tenon/device/host/segment_cache.h"
#include "tenon/device/stream_table.h"

namespace tenon {

// How much the host's memory may hold and keep, and for how long.
struct HostOptions {
  std::uint64_t limit_bytes = 0;                   // 0: what the machine and its groups allow
  std::uint64_t cache_bytes = 256 * 1024 * 1024;   // freed segments kept at most
  std::uint64_t decay_ns = 1'000'000'000;          // ... and for how long
  bool huge_pages = true;                          // ask for them where 2 MiB fit
  std::function<std::uint64_t()> clock = {};       // in ns; for tests; empty: the steady clock
};

// Device cpu:0. Segments are private mappings; from 2 MiB on they are aligned for huge pages and
// ask for them. Page handles are files in memory, each with a descriptor of its own, so they can
// be mapped twice and passed to another process.
//
// Giving back: a freed segment is kept until it is decay_ns old, the cache is over its bound,
// memory is short, or trim() is called. Ages are checked at each request and free.
// Limit: segments, cache and pages together. A request beyond it is lack of memory. They count when
// they are handed out, although the system backs them only when touched.
// Streams are always done. export_pages returns a new descriptor, which the caller closes.
// import_pages makes its own copy of the one that it is given.
// Thread-safe (one mutex); copy and fill do not take it while they move bytes.
class HostBackend final : public Backend {
 public:
  explicit HostBackend(HostOptions options = {});
  // Everything that is still held goes back to the system.
  ~HostBackend() override;

  // Bytes in freed segments that are kept for reuse.
  std::uint64_t cached_bytes() const;
  // Bytes in segments, cache and page handles.
  std::uint64_t held_bytes() const;

  // --- Backend.
  Device device() const override { return Device{DeviceType::kCpu, 0}; }
  std::string description() const override;
  const BackendLimits& limits() const override { return limits_; }
  BackendMemory memory() const override;
  std::uint64_t total_bytes() const override { return limit_bytes_; }

  std::optional<Segment> allocate_segment(std::uint64_t size_bytes,
                                          MemoryKind kind = MemoryKind::kDevice) override;
  void free_segment(const Segment& segment) override;

  std::optional<AddressRange> reserve_address(std::uint64_t size_bytes) override;
  void release_address(AddressRange range) override;
  std::optional<PageHandle> create_pages(std::uint64_t size_bytes) override;
  void release_pages(PageHandle pages) override;
  bool map(std::uintptr_t address, PageHandle pages) override;
  bool set_access(std::uintptr_t address, std::uint64_t size_bytes) override;
  void unmap(std::uintptr_t address, PageHandle pages) override;

  void purge(void* base, std::uint64_t size_bytes) override;  // in whole huge pages
  std::uint64_t trim() override;
  bool release_idle() override;
  void before_fork() override { mutex_.lock(); }
  void after_fork() override { mutex_.unlock(); }

  std::int64_t export_pages(PageHandle pages) override;
  PageHandle import_pages(std::int64_t token, std::uint64_t size_bytes) override;

  void copy(void* dest, const void* src, std::uint64_t size_bytes, Stream stream) override;
  void fill(void* dest, std::uint8_t value, std::uint64_t size_bytes, Stream stream) override;

  Stream create_stream() override;
  void destroy_stream(Stream stream) override;
  Event record(Stream stream) override;
  bool query(Event event) override;
  void wait(Event event) override;
  void stream_wait(Stream stream, Event event) override;
  void destroy_event(Event event) override;
  void synchronize(Stream stream) override;
  void synchronize() override;

  // Times are measured.
  DriverLedger ledger() const override;
  void set_purpose(DriverPurpose purpose) override;

 private:
  class TimedCall;

  // All under mutex_.
  std::uint64_t now_ns() const;
  void count(DriverCall call) { ++ledger_.calls[static_cast<std::size_t>(call)]; }
  bool make_room(std::uint64_t size_bytes);
  void purge_until(std::uint64_t time_ns);
  void purge_above(std::uint64_t cached_bytes);
  void give_back(SegmentCache::Range range);
  void give_back(const std::optional<AddressTable::Dropped>& dropped);
  void require_contents(const char* call, const void* address, std::uint64_t size_bytes,
                        Stream stream) const;

  const HostOptions options_;
  const std::uint64_t limit_bytes_;
  BackendLimits limits_;

  mutable std::mutex mutex_;
  DriverPurpose purpose_ = DriverPurpose::kGrowth;
  DriverLedger ledger_;
  AddressTable table_;
  StreamTable streams_;
  SegmentCache cache_;
  std::size_t segments_ = 0;  // that are out
  std::uint64_t held_bytes_ = 0;
};

// The process's one host backend. Thread-safe, and never destroyed, so that memory may be freed
// while the program ends.
HostBackend& host_backend();

}  // namespace tenon
