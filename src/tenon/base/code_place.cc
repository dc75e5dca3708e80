#include "tenon/base/code_place.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <memory>

#if TENON_HAS_LIBBACKTRACE
#include <backtrace.h>
#endif

namespace tenon {
namespace {

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 ? plain.get() : name;
}

// By what the dynamic linker knows.
std::string describe_by_linker(void* address) {
  Dl_info info = {};
  if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr)
    return fmt::format("    at {}\n", address);
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (info.dli_sname == nullptr)
    return fmt::format("    at {:#x} in {}\n",
                       at - reinterpret_cast<std::uintptr_t>(info.dli_fbase), info.dli_fname);
  return fmt::format("    at {} + {:#x} ({})\n", demangled(info.dli_sname),
                     at - reinterpret_cast<std::uintptr_t>(info.dli_saddr), info.dli_fname);
}

#if TENON_HAS_LIBBACKTRACE

void ignore_error(void*, const char*, int) {}

// Null when the program cannot read itself.
backtrace_state* debug_information() {
  static backtrace_state* const kState =
      ::backtrace_create_state(nullptr, /*threaded=*/1, &ignore_error, nullptr);
  return kState;
}

int add_function(void* text, std::uintptr_t, const char* file, int line, const char* function) {
  if (file == nullptr) return 0;
  *static_cast<std::string*>(text) += fmt::format(
      "    at {} ({}:{})\n", function != nullptr ? demangled(function) : "?", file, line);
  return 0;
}

// Names that are in the symbol table, though not in the dynamic one.
void add_symbol(void* text, std::uintptr_t address, const char* name, std::uintptr_t begin,
                std::uintptr_t) {
  if (name != nullptr)
    *static_cast<std::string*>(text) =
        fmt::format("    at {} + {:#x}\n", demangled(name), address - begin);
}

// Empty: nothing is known of it.
std::string describe_by_debug_information(void* return_address) {
  std::string text;
  backtrace_state* const state = debug_information();
  if (state == nullptr) return text;
  const auto call = reinterpret_cast<std::uintptr_t>(return_address) - 1;  // inside the call
  ::backtrace_pcinfo(state, call, &add_function, &ignore_error, &text);
  if (text.empty()) ::backtrace_syminfo(state, call, &add_symbol, &ignore_error, &text);
  return text;
}

#endif

}  // namespace

std::string describe_code(void* return_address) {
#if TENON_HAS_LIBBACKTRACE
  std::string text = describe_by_debug_information(return_address);
  if (!text.empty()) return text;
#endif
  return describe_by_linker(return_address);
}

bool code_has_lines() { return TENON_HAS_LIBBACKTRACE; }

}  // namespace tenon
