// A driver before another one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tenon/device/backend.h"

namespace tenon {

// Passes every call on. What stands before a driver to watch it, break it or add to it derives from
// this and overrides what it changes. As thread-safe as the driver.
class ForwardingBackend : public Backend {
 public:
  // Requires: `driver` outlives it.
  explicit ForwardingBackend(Backend& driver) : driver_(driver) {}

  // The driver behind.
  Backend& driver() const { return driver_; }

  Device device() const override { return driver_.device(); }
  std::string description() const override { return driver_.description(); }
  const BackendLimits& limits() const override { return driver_.limits(); }
  BackendMemory memory() const override { return driver_.memory(); }
  std::uint64_t total_bytes() const override { return driver_.total_bytes(); }
  const Backend& source() const override { return driver_.source(); }
  std::optional<Segment> allocate_segment(std::uint64_t size_bytes, MemoryKind kind) override {
    return driver_.allocate_segment(size_bytes, kind);
  }
  void free_segment(const Segment& segment) override { driver_.free_segment(segment); }
  std::optional<AddressRange> reserve_address(std::uint64_t size_bytes) override {
    return driver_.reserve_address(size_bytes);
  }
  void release_address(AddressRange range) override { driver_.release_address(range); }
  std::optional<PageHandle> create_pages(std::uint64_t size_bytes) override {
    return driver_.create_pages(size_bytes);
  }
  void release_pages(PageHandle pages) override { driver_.release_pages(pages); }
  bool map(std::uintptr_t address, PageHandle pages) override {
    return driver_.map(address, pages);
  }
  bool set_access(std::uintptr_t address, std::uint64_t size_bytes) override {
    return driver_.set_access(address, size_bytes);
  }
  void unmap(std::uintptr_t address, PageHandle pages) override { driver_.unmap(address, pages); }
  std::int64_t export_pages(PageHandle pages) override { return driver_.export_pages(pages); }
  PageHandle import_pages(std::int64_t token, std::uint64_t size_bytes) override {
    return driver_.import_pages(token, size_bytes);
  }
  void purge(void* data, std::uint64_t size_bytes) override { driver_.purge(data, size_bytes); }
  std::uint64_t trim() override { return driver_.trim(); }
  bool release_idle() override { return driver_.release_idle(); }
  void before_fork() override { driver_.before_fork(); }
  void after_fork() override { driver_.after_fork(); }
  void copy(void* dest, const void* src, std::uint64_t size_bytes, Stream stream) override {
    driver_.copy(dest, src, size_bytes, stream);
  }
  void fill(void* dest, std::uint8_t value, std::uint64_t size_bytes, Stream stream) override {
    driver_.fill(dest, value, size_bytes, stream);
  }
  Stream create_stream() override { return driver_.create_stream(); }
  void destroy_stream(Stream stream) override { driver_.destroy_stream(stream); }
  Event record(Stream stream) override { return driver_.record(stream); }
  bool query(Event event) override { return driver_.query(event); }
  void wait(Event event) override { driver_.wait(event); }
  void stream_wait(Stream stream, Event event) override { driver_.stream_wait(stream, event); }
  void destroy_event(Event event) override { driver_.destroy_event(event); }
  void synchronize(Stream stream) override { driver_.synchronize(stream); }
  void synchronize() override { driver_.synchronize(); }
  DriverLedger ledger() const override { return driver_.ledger(); }
  void set_purpose(DriverPurpose purpose) override { driver_.set_purpose(purpose); }

 protected:
  Backend& driver_;
};

}  // namespace tenon
