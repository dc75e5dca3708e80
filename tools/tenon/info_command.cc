// tenon info: devices, limits, build.
#include <fmt/format.h>

#include <thread>

#include "commands.h"
#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/version.h"
#include "tenon/device/devices.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/policies.h"

namespace tenon::command {
namespace {

void print_devices() {
  fmt::print("devices\n");
  for (const DeviceInfo& info : list_devices())
    fmt::print("  {:<6}  {}\n", to_string(info.device), info.line);
  if (const std::string reason = why_no_cuda(); !reason.empty())
    fmt::print("  {:<6}  none: {}\n", "cuda", reason);
}

void print_limits() {
  const BackendLimits sim = SimBackend().limits();
  fmt::print("\nlimits\n");
  fmt::print("  largest request  {}\n", format_byte_size(kMaxRequestBytes));
  fmt::print("  kinds of device  {}\n", kMaxDeviceTypes);
  fmt::print("  sim alignment    {}, pages of {}\n", format_byte_size(sim.alignment),
             format_byte_size(sim.page_granularity));
}

void print_build() {
#ifdef NDEBUG
  constexpr const char* kChecks = "release";
#else
  constexpr const char* kChecks = "debug, with its checks";
#endif
  fmt::print("\nbuild\n");
  fmt::print("  version   tenon {}, {}\n", TENON_VERSION, kChecks);
  fmt::print("  compiler  {}, C++{}\n", __VERSION__, __cplusplus / 100 % 100);
  fmt::print("  policies  {}\n", policies().size());
  fmt::print("  threads   {} in hardware\n", std::thread::hardware_concurrency());
}

int run_info() {
  print_devices();
  print_limits();
  print_build();
  return kSuccess;
}

}  // namespace

Subcommand add_info(CommandLine& app) {
  return {&app.add_subcommand("info", "Show devices, limits and how this was built"), run_info};
}

}  // namespace tenon::command
