// tenon info: devices, limits, build.
#include <fmt/format.h>

#include <thread>

#include "commands.h"
#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/policies.h"

namespace tenon::command {
namespace {

void print_device(const Backend& backend) {
  const BackendLimits& limits = backend.limits();
  const auto yes_no = [](bool value) { return value ? "yes" : "no"; };
  fmt::print("{}  {}\n", to_string(backend.device()), backend.description());
  fmt::print("  memory {}, free {}\n", format_byte_size(backend.memory().total_bytes),
             format_byte_size(backend.memory().free_bytes));
  fmt::print(
      "  alignment {}, pages {}, virtual memory {}, mapped twice {}, unified {}, streams {}\n",
      format_byte_size(limits.alignment),
      limits.page_granularity == 0 ? "none" : format_byte_size(limits.page_granularity),
      yes_no(limits.has_virtual_memory), yes_no(limits.can_map_twice), yes_no(limits.unified),
      yes_no(limits.has_streams));
}

int run_info() {
  fmt::print("devices\n");
  print_device(SimBackend());
  fmt::print("\nlimits\n  largest request {}\n  device types {}\n",
             format_byte_size(kMaxRequestBytes), kMaxDeviceTypes);
  fmt::print(
      "\nbuild\n  tenon 0.1.0, C++{}, compiler {}, {}\n  policies {}\n  hardware threads {}\n",
      __cplusplus / 100 % 100, __VERSION__,
#ifdef NDEBUG
      "checks of the release build",
#else
      "checks of the debug build",
#endif
      policies().size(), std::thread::hardware_concurrency());
  return kSuccess;
}

}  // namespace

Subcommand add_info(CLI::App& app) {
  return {app.add_subcommand("info", "Show devices, limits and how this was built"), run_info};
}

}  // namespace tenon::command
