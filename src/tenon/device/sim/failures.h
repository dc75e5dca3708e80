// Failures on demand, for tests.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "tenon/base/random.h"
#include "tenon/device/driver_ledger.h"

namespace tenon {

// Decides whether the driver call that is being made fails. The same seed and the same calls give
// the same failures. O(1) per call while nothing is scripted. Not thread-safe.
class SimFailures {
 public:
  explicit SimFailures(std::uint64_t seed) : random_(seed) {}

  // Calls that can lack memory; the others fail with DeviceError.
  static bool can_lack_memory(DriverCall call) {
    return call == DriverCall::kAllocate || call == DriverCall::kReserveAddress ||
           call == DriverCall::kCreate || call == DriverCall::kMap ||
           call == DriverCall::kSetAccess;
  }

  // The `nth` call of that kind from now fails; 1 is the next.
  void fail_call(DriverCall call, std::uint64_t nth) {
    scripted_.emplace_back(call, made_[static_cast<std::size_t>(call)] + nth);
  }
  // Each call that can lack memory fails with this probability.
  void set_rate(double probability) { rate_ = probability; }
  // Nothing fails any more.
  void clear() {
    scripted_.clear();
    rate_ = 0;
  }

  // Counts the call; true when it is to fail.
  bool strikes(DriverCall call) {
    const std::uint64_t number = ++made_[static_cast<std::size_t>(call)];
    bool struck = rate_ > 0 && can_lack_memory(call) && random_.chance(rate_);
    if (!scripted_.empty()) {
      const auto removed = std::erase(scripted_, std::pair(call, number));
      struck = struck || removed > 0;
    }
    return struck;
  }

 private:
  std::array<std::uint64_t, kDriverCalls> made_ = {};
  std::vector<std::pair<DriverCall, std::uint64_t>> scripted_;  // the call and its number
  double rate_ = 0;
  Random random_;
};

}  // namespace tenon
