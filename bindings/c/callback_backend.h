// A device whose driver is a C program's functions.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "tenon/device/address_table.h"
#include "tenon/device/backend.h"
#include "tenon/device/stream_table.h"
#include "tenon/tenon.h"

namespace tenon::c {

// Whether each call is right is checked here, by the table that Tenon's own devices use, so the
// functions see only calls that make sense. Without functions for streams all work is done when a
// function returns.
// Thread-safe: one mutex, held while functions are called, except those that wait.
class CallbackBackend final : public Backend {
 public:
  // Throws InvalidArgument, naming the field.
  explicit CallbackBackend(const tenon_device_functions& functions,
                           const tenon_stream_functions* streams = nullptr);
  ~CallbackBackend() override;

  Device device() const override { return device_; }
  std::string description() const override { return name_ + ": a device of the program's own"; }
  const BackendLimits& limits() const override { return limits_; }
  BackendMemory memory() const override;
  std::uint64_t total_bytes() const override { return functions_.total_bytes; }

  std::optional<Segment> allocate_segment(std::uint64_t size_bytes, MemoryKind kind) override;
  void free_segment(const Segment& segment) override;

  std::optional<AddressRange> reserve_address(std::uint64_t size_bytes) override;
  void release_address(AddressRange range) override;
  std::optional<PageHandle> create_pages(std::uint64_t size_bytes) override;
  void release_pages(PageHandle pages) override;
  bool map(std::uintptr_t address, PageHandle pages) override;
  bool set_access(std::uintptr_t address, std::uint64_t size_bytes) override;
  void unmap(std::uintptr_t address, PageHandle pages) override;

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

  DriverLedger ledger() const override;

 private:
  void finish(const char* call, Stream stream);  // waits for its work; mutex_ must be free
  void finish_all();

  // All under mutex_.
  std::uint64_t event_of(const char* call, Event event) const;
  void count(DriverCall call) { ++ledger_.calls[static_cast<std::size_t>(call)]; }
  void require_virtual_memory(const char* call) const;
  void drop(const std::optional<AddressTable::Dropped>& dropped);
  bool has_room(std::uint64_t size_bytes) const {
    return size_bytes <= functions_.total_bytes - used_bytes_;
  }

  const tenon_device_functions functions_;
  const std::optional<tenon_stream_functions> queues_;  // none: nothing is ever queued
  const std::string name_;
  const Device device_;
  BackendLimits limits_;
  mutable std::mutex mutex_;
  AddressTable table_;
  StreamTable streams_;  // which streams and events there are
  std::unordered_map<std::uint64_t, std::uint64_t> events_;  // by Event::id: the device's own
  DriverLedger ledger_;
  std::uint64_t used_bytes_ = 0;
};

}  // namespace tenon::c
