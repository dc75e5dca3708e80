// What an allocator has asked of a driver, and what it cost. Plain data: thread-safe while no
// thread writes it. O(1), and nothing throws.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tenon {

// The kinds of calls that are counted.
enum class DriverCall : std::uint8_t {
  kAllocate,        // a whole segment (cudaMalloc, mmap)
  kFree,            // a whole segment
  kReserveAddress,
  kReleaseAddress,
  kCreate,          // physical pages
  kRelease,
  kMap,
  kSetAccess,
  kUnmap,
  kEventRecord,
  kEventQuery,
  kStreamWait,      // a stream made to wait for an event; the host goes on
  kHostWait,        // the host waits for an event, a stream or the device
  kCount,
};
inline constexpr std::size_t kDriverCalls = static_cast<std::size_t>(DriverCall::kCount);

// The name in reports: "set_access".
std::string_view driver_call_name(DriverCall call);

// Why an allocator is talking to its driver; decides which stall a call counts as.
enum class DriverPurpose : std::uint8_t { kGrowth, kMoving };

// Counts and time of driver calls. Figures that depend on a cost model say so.
struct DriverLedger {
  std::array<std::uint64_t, kDriverCalls> calls = {};  // successful and failed, by DriverCall
  std::uint64_t stall_ns = 0;         // all calls, and every wait of the host for the device
  std::uint64_t moving_stall_ns = 0;  // the part spent moving pages between addresses

  // Calls of one kind.
  std::uint64_t count(DriverCall call) const { return calls[static_cast<std::size_t>(call)]; }

  // Calls that change memory: what "driver calls" means in every table. Events are not among them.
  std::uint64_t memory_calls() const {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i <= static_cast<std::size_t>(DriverCall::kUnmap); ++i) sum += calls[i];
    return sum;
  }
};

}  // namespace tenon
