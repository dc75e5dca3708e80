// A backend that notes which memory its allocator holds, and where.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "tenon/device/sim/sim_backend.h"

namespace tenon {

// Memory that came to stand behind a range of addresses, or left it.
struct BackingChange {
  std::uint32_t op = 0;  // the operation of the workload that caused it
  bool begins = false;
  bool page = false;     // mapped pages; otherwise a whole segment
  std::uint64_t address = 0;
  std::uint64_t size_bytes = 0;
};

// Physical bytes held after a driver call.
struct HeldStep {
  std::uint32_t op = 0;
  std::uint64_t bytes = 0;
};

// Passes every call on to a simulated device and keeps a diary. A page that is mapped at several
// addresses counts as standing where it was mapped last, or where a block was placed since (an
// allocator may take up an old mapping without any driver call): note_block tells.
// Not thread-safe: for one replay.
class WatchingBackend final : public Backend {
 public:
  explicit WatchingBackend(SimBackend& device) : device_(device) {}

  // What follows happens in this operation.
  void set_op(std::uint32_t op) { op_ = op; }
  // Nothing more is noted: the replay is over and blocks are dropped.
  void stop() { watching_ = false; }
  // A block was placed at these addresses.
  void note_block(std::uint64_t address, std::uint64_t size_bytes);

  const std::vector<BackingChange>& backing() const { return backing_; }
  const std::vector<HeldStep>& held() const { return held_; }

  Device device() const override { return device_.device(); }
  std::string description() const override { return device_.description(); }
  const BackendLimits& limits() const override { return device_.limits(); }
  BackendMemory memory() const override { return device_.memory(); }
  std::optional<Segment> allocate_segment(std::uint64_t size_bytes, MemoryKind kind) override;
  void free_segment(const Segment& segment) override;
  std::optional<AddressRange> reserve_address(std::uint64_t size_bytes) override {
    return device_.reserve_address(size_bytes);
  }
  void release_address(AddressRange range) override { device_.release_address(range); }
  std::optional<PageHandle> create_pages(std::uint64_t size_bytes) override;
  void release_pages(PageHandle pages) override;
  bool map(std::uintptr_t address, PageHandle pages) override;
  bool set_access(std::uintptr_t address, std::uint64_t size_bytes) override {
    return device_.set_access(address, size_bytes);
  }
  void unmap(std::uintptr_t address, PageHandle pages) override;
  void copy(void* dest, const void* src, std::uint64_t size_bytes, Stream stream) override {
    device_.copy(dest, src, size_bytes, stream);
  }
  void fill(void* dest, std::uint8_t value, std::uint64_t size_bytes, Stream stream) override {
    device_.fill(dest, value, size_bytes, stream);
  }
  Stream create_stream() override { return device_.create_stream(); }
  void destroy_stream(Stream stream) override { device_.destroy_stream(stream); }
  Event record(Stream stream) override { return device_.record(stream); }
  bool query(Event event) override { return device_.query(event); }
  void wait(Event event) override { device_.wait(event); }
  void stream_wait(Stream stream, Event event) override { device_.stream_wait(stream, event); }
  void destroy_event(Event event) override { device_.destroy_event(event); }
  void synchronize(Stream stream) override { device_.synchronize(stream); }
  void synchronize() override { device_.synchronize(); }
  DriverLedger ledger() const override { return device_.ledger(); }
  void set_purpose(DriverPurpose purpose) override { device_.set_purpose(purpose); }

 private:
  struct Mapping {
    std::uint64_t size_bytes = 0;
    std::uint64_t handle = 0;
  };
  void note_held();
  void note_backing(bool begins, bool page, std::uint64_t address, std::uint64_t size_bytes);

  SimBackend& device_;
  bool watching_ = true;
  std::uint32_t op_ = 0;
  std::vector<BackingChange> backing_;
  std::vector<HeldStep> held_;
  std::map<std::uint64_t, Mapping> mappings_;                        // by address
  std::unordered_map<std::uint64_t, std::uint64_t> place_of_handle_;  // where it stands now
};

}  // namespace tenon
