#include "tenon/device/driver_ledger.h"

namespace tenon {

std::string_view driver_call_name(DriverCall call) {
  static constexpr std::array<std::string_view, kDriverCalls> kNames = {
      "allocate", "free",       "reserve_address", "release_address", "create",
      "release",  "map",        "set_access",      "unmap",           "event_record",
      "event_query", "stream_wait", "host_wait"};
  return kNames[static_cast<std::size_t>(call)];
}

}  // namespace tenon
