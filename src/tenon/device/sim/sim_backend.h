// A simulated device, for replays and tests. A call is O(log n) in segments and mappings.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tenon/base/spin_lock.h"
#include "tenon/device/backend.h"
#include "tenon/device/sim/sim_options.h"

namespace tenon {

class OrderChecker;
class SimAddressSpace;
class SimFailures;
class StreamTable;

// The simulated device: a Backend with a capacity, streams that lag behind the host, a clock that
// driver calls move on, and failures on demand. Addresses are fake unless real_memory is set. As
// mostly with NVIDIA's driver, each new segment or address range lies below all earlier ones, and
// no address is used twice before 127 TiB of them were. The same calls give the same addresses,
// times and failures in every run.
//
// Time: now_ns() is the program's time (advance_to) plus every stall so far. Work queued on a
// stream at time t is finished at t + lag_ns. Host waits and free_segment stall until the work is
// finished. A call that fails is counted and takes no time. Copies and fills queue no work. With
// real memory they are done at once; with fake addresses they only check that the range is
// accessible. Thread-safe (one lock).
class SimBackend final : public Backend {
 public:
  explicit SimBackend(const SimOptions& options = {});
  ~SimBackend() override;

  // --- The simulation's own controls.
  // Moves the program's clock; never backwards (an earlier time changes nothing).
  void advance_to(std::uint64_t program_time_ns);
  std::uint64_t now_ns() const;
  // The host queues work on the stream now.
  void queue_work(Stream stream);
  // Physical bytes held by segments and pages now, and the most ever (since reset_peak).
  std::uint64_t used_bytes() const;
  std::uint64_t peak_used_bytes() const;
  void reset_peak();
  void reset_ledger();
  void set_capacity(std::uint64_t capacity_bytes);

  // --- Failures. The n-th call from now of that kind (1 is the next) fails. allocate, create, map,
  // set_access and reserve_address fail as if memory were short, the others with DeviceError.
  void fail_call(DriverCall call, std::uint64_t nth);
  // Every call that allocates fails with this probability, by the seed.
  void set_failure_rate(double probability);
  void clear_failures();

  // --- The stream rule, by happens-before (see OrderChecker). Requires: options.check_order.
  // Queues work on the stream that reads or writes these bytes on behalf of block `owner_id`. A
  // block that is allocated anew needs a new id.
  void access(Stream stream, const void* address, std::uint64_t size_bytes,
              std::uint64_t owner_id);
  // What went against the rule so far: one readable line each; empty when all is well.
  std::vector<std::string> order_violations() const;

  // --- Backend.
  Device device() const override { return device_; }
  std::string description() const override;
  const BackendLimits& limits() const override { return limits_; }
  BackendMemory memory() const override;

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
  void set_purpose(DriverPurpose purpose) override;

 private:
  // All under lock_.
  bool call_lacks_memory(DriverCall call);  // counts the call; throws where it must fail otherwise
  void charge(std::uint64_t elapsed_ns);
  void stall_until(std::uint64_t time_ns);
  void require_stream(const char* call, Stream stream) const;
  void require_checker(const char* call) const;

  const SimOptions options_;
  const CostModel& costs_;
  const Device device_;
  BackendLimits limits_;

  mutable SpinLock lock_;
  std::uint64_t program_ns_ = 0;
  std::uint64_t stalled_ns_ = 0;  // ever; the ledger's figure can be reset
  DriverPurpose purpose_ = DriverPurpose::kGrowth;
  DriverLedger ledger_;
  std::unique_ptr<SimAddressSpace> space_;
  std::unique_ptr<StreamTable> streams_;
  std::unique_ptr<SimFailures> failures_;
  std::unique_ptr<OrderChecker> checker_;  // null unless options.check_order
};

}  // namespace tenon
