// tenon info: devices, limits, build, environment.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <thread>

#include "commands.h"
#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/environment.h"
#include "tenon/base/printable.h"
#include "tenon/base/version.h"
#include "tenon/device/devices.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/policies.h"

namespace tenon::command {
namespace {

void print_devices() {
  fmt::print("devices\n");
  for (const DeviceInfo& info : list_devices())
    fmt::print("  {:<8}  {}\n", to_string(info.device), info.line);
  for (const auto& [kind, reason] : {std::pair{"cuda", why_no_cuda()},
                                     std::pair{"vulkan", why_no_vulkan()}})
    if (!reason.empty()) fmt::print("  {:<8}  none: {}\n", kind, one_line(reason));
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

void print_environment() {
  for (const EnvironmentVariable& variable : environment_variables()) {
    const char* value = std::getenv(variable.name);
    fmt::print("{:<24}  {:<16}  {}{}\n", variable.name, variable.read_by, variable.meaning,
               value == nullptr ? "" : fmt::format("; it is \"{}\"", one_line(value)));
  }
}

int run_info(bool environment) {
  if (environment) {
    print_environment();
    return kSuccess;
  }
  print_devices();
  print_limits();
  print_build();
  return kSuccess;
}

}  // namespace

Subcommand add_info(CommandLine& app) {
  CommandLine& info = app.add_subcommand("info", "Show devices, limits and how this was built");
  const auto environment = std::make_shared<bool>(false);
  info.add_flag("--environment", *environment,
                "Show only the environment variables that Tenon reads");
  info.footer("Exit status: 0, 2 for bad usage.");
  return {&info, [environment] { return run_info(*environment); }};
}

}  // namespace tenon::command
