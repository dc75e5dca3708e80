// Operators of a device's tensors that the host computes. O(operators).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tenon/device/device.h"

namespace tenon {

class StorageImpl;

// Note [Fallback]. A device may have no kernel for an operator. Then the host computes it, after a
// wait for queued work. Where the device shares its memory with the host, it computes in place.
// Elsewhere the whole storage of each argument is copied to the host, and what the host wrote is
// copied back. That may be slow, so it is counted by operator. TENON_FALLBACK=error forbids it.
// Copies and fills count as operators.
struct HostFallback {
  std::string name;  // of the operator
  std::uint64_t calls = 0;
  std::uint64_t copied_bytes = 0;  // both ways; none in shared memory
};

// Those of this process so far, the most frequent first. Thread-safe.
std::vector<HostFallback> fallbacks();

// "mul 83, sum 49", and the bytes where any were copied: "mul 83, sum 49; 2.00 MiB copied".
std::string to_string(const std::vector<HostFallback>& calls);

namespace detail {
class HostCopies;
struct DeleteHostCopies {
  void operator()(HostCopies* copies) const noexcept;
};
}  // namespace detail

// The time in which the host computes an operator of a device's tensors. Until it ends, this thread
// and the workers of its parallel loops may use data_ptr() of that device's tensors. Where memory
// is separate, data_ptr() is the address of a copy, which lasts as long as the turn. A turn inside
// another one uses its copies. Threads: a turn is the thread's that takes it.
class [[nodiscard]] HostTurn {
 public:
  HostTurn() = default;  // no turn until take()
  // take(), except for the host's own tensors, and those of meta.
  HostTurn(const char* name, Device device) : device_(device) {
    if (device.type != DeviceType::kCpu && device.type != DeviceType::kMeta) [[unlikely]]
      take(name, device);
  }
  HostTurn(const HostTurn&) = delete;
  HostTurn& operator=(const HostTurn&) = delete;
  // Copies back what the host wrote. Throws DeviceError where the device refuses it.
  ~HostTurn() noexcept(false) {
    if (copies_ != nullptr) [[unlikely]]
      give_back();
  }

  // Counts a call. Throws DeviceError where TENON_FALLBACK=error, and InvalidArgument where a
  // capture records, and for a device without operators. Requires: the name outlives the turn.
  void take(const char* name, Device device);
  operator Device() const { return device_; }

 private:
  void give_back();

  Device device_;
  int exceptions_ = 0;  // in flight when it began
  std::unique_ptr<detail::HostCopies, detail::DeleteHostCopies> copies_;  // in separate memory
};

namespace detail {

// The host's address of a storage in memory that is separate from the host's. Throws
// InvalidArgument outside a turn. Thread-safe.
void* address_in_turn(StorageImpl& storage, bool writes);
// Before work on a storage is queued: the device gets what this turn wrote, and if it writes, the
// turn reads anew.
void bring_to_device(StorageImpl& storage, bool writes);

}  // namespace detail
}  // namespace tenon
