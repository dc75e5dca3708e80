#include "tenon/base/environment.h"

#include <charconv>
#include <cstdlib>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/base/parse_real.h"
#include "tenon/base/printable.h"

namespace tenon {
namespace {

bool is_size(std::string_view text) {
  try {
    return parse_byte_size(text) > 0;
  } catch (const InvalidArgument&) {
    return false;
  }
}

bool is_number_of_threads(std::string_view text) {
  int threads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  return error == std::errc() && end == text.data() + text.size() && threads >= 1 &&
         threads <= 4096;
}

bool is_time(std::string_view text) {
  const auto seconds = parse_real(text);
  return seconds && *seconds > 0 && *seconds <= 1e6;
}

bool is_error(std::string_view text) { return text == "error"; }
bool is_switch(std::string_view text) { return text == "0" || text == "1"; }

constexpr EnvironmentVariable kVariables[] = {
    {"TENON_RECORD", "tenon::lab",
     "a path: all allocators of the process are recorded into it, by its ending; %p in it is the "
     "process's number; a command whose recording is lost fails",
     "", nullptr},
    {"TENON_READ_LIMIT", "tenon::lab",
     "a size: how much memory reading one file may take; default: by the file's size",
     "a size above 0, such as 8GiB", is_size},
    {"TENON_NUM_THREADS", "tenon::tensor",
     "a number: threads of operators; default: one for each core",
     "a whole number from 1 to 4096", is_number_of_threads},
    {"TENON_RANK_TIMEOUT", "tenon-training",
     "a number of seconds: a rank that waits longer asks which others are there; default: 6",
     "a number of seconds above 0, up to 1000000", is_time},
    {"TENON_FALLBACK", "tenon::tensor",
     "error: an operator that a device has no kernel for fails, instead of running on the host",
     "error", is_error},
    {"TENON_CUDA_DRIVER", "tenon::memory",
     "a path: the CUDA driver's library; default: libcuda.so.1", "", nullptr},
    {"TENON_VULKAN_LOADER", "tenon::memory",
     "a path: Vulkan's loader; default: libvulkan.so.1", "", nullptr},
    {"TENON_VULKAN_STAGE", "tenon::memory",
     "1: Vulkan devices are used as if their memory were separate from the host's", "1 or 0",
     is_switch},
    {"TENON_VULKAN_VALIDATION", "tenon::memory",
     "1: Khronos' validation layer checks Vulkan's calls; its messages go to standard error",
     "1 or 0", is_switch},
    {"TENON_PRELOAD_STATISTICS", "libtenon_preload",
     "1, or a path: a line of statistics at the process's end, on standard error or there", "",
     nullptr},
    {"TENON_TORCH_IN_USE", "libtenon_torch",
     "set by the library itself, to refuse a second copy in one process", "", nullptr},
};

std::string_view value_of(const EnvironmentVariable& variable) {
  const char* const value = std::getenv(variable.name);
  if (value == nullptr || *value == '\0') return {};
  if (variable.allows != nullptr && !variable.allows(value))
    raise<InvalidArgument>("{}: \"{}\" is not allowed: give {}, or unset it", variable.name,
                           one_line(value), variable.allowed);
  return value;
}

}  // namespace

std::span<const EnvironmentVariable> environment_variables() { return kVariables; }

std::string_view environment_value(std::string_view name) {
  for (const EnvironmentVariable& variable : kVariables)
    if (name == variable.name) return value_of(variable);
  raise<InternalError>("{} is no environment variable of Tenon", name);
}

void check_environment() {
  for (const EnvironmentVariable& variable : kVariables) value_of(variable);
}

}  // namespace tenon
