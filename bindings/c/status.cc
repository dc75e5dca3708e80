#include "status.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <ios>
#include <new>
#include <optional>
#include <string>

#include "structures.h"
#include "tenon/base/error.h"
#include "tenon/base/printable.h"
#include "tenon/base/version.h"

namespace tenon::c {
namespace {

thread_local std::string last_error;
thread_local std::optional<OutOfMemoryDetails> last_out_of_memory;

tenon_status keep(const char* function, tenon_status status, const char* message) noexcept {
  try {
    last_error = fmt::format("{}: {}", function, one_line(message));  // it may quote anything
  } catch (...) {
    last_error.clear();  // no memory for words
  }
  return status;
}

}  // namespace

tenon_status report_current_exception(const char* function) noexcept {
  try {
    throw;
  } catch (const InvalidHandle& error) {
    return keep(function, TENON_INVALID_HANDLE, error.what());
  } catch (const InUse& error) {
    return keep(function, TENON_IN_USE, error.what());
  } catch (const std::invalid_argument& error) {
    return keep(function, TENON_INVALID_ARGUMENT, error.what());
  } catch (const InvalidPointer& error) {
    return keep(function, TENON_INVALID_POINTER, error.what());
  } catch (const OutOfMemory& error) {
    last_out_of_memory = error.details();
    return keep(function, TENON_OUT_OF_MEMORY, error.what());
  } catch (const std::bad_alloc&) {
    last_out_of_memory = OutOfMemoryDetails{};
    return keep(function, TENON_OUT_OF_MEMORY, "the machine has no memory for Tenon's own records");
  } catch (const DeviceError& error) {
    return keep(function, TENON_DEVICE_ERROR, error.what());
  } catch (const ParseError& error) {
    return keep(function, TENON_PARSE_ERROR, error.what());
  } catch (const InternalError& error) {
    return keep(function, TENON_INTERNAL_ERROR, error.what());
  } catch (const std::runtime_error& error) {  // what Tenon's writers throw
    return keep(function, TENON_IO_ERROR, error.what());
  } catch (const std::exception& error) {
    return keep(function, TENON_INTERNAL_ERROR, error.what());
  } catch (...) {
    return keep(function, TENON_INTERNAL_ERROR, "an exception of an unknown kind");
  }
}

void check_struct_bytes(std::size_t given, std::size_t own, const char* name) {
  if (given != own)
    throw std::invalid_argument(fmt::format(
        "{}.struct_bytes is {}, not {}: set it to the structure's sizeof, and use the header of "
        "Tenon {}",
        name, given, own, TENON_VERSION));
}

char* copy_text(const std::string& text) {
  auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

}  // namespace tenon::c

using namespace tenon::c;

const char* tenon_version() { return TENON_VERSION; }
int tenon_c_abi() { return TENON_C_ABI; }

const char* tenon_status_name(tenon_status status) {
  switch (status) {
    case TENON_OK: return "ok";
    case TENON_INVALID_ARGUMENT: return "invalid argument";
    case TENON_INVALID_HANDLE: return "invalid handle";
    case TENON_INVALID_POINTER: return "invalid pointer";
    case TENON_OUT_OF_MEMORY: return "out of memory";
    case TENON_DEVICE_ERROR: return "device error";
    case TENON_PARSE_ERROR: return "parse error";
    case TENON_IO_ERROR: return "input or output error";
    case TENON_IN_USE: return "in use";
    case TENON_INTERNAL_ERROR: return "internal error";
  }
  return "unknown";
}

const char* tenon_last_error() { return last_error.c_str(); }

tenon_status tenon_last_out_of_memory(tenon_out_of_memory* out) {
  return guarded("tenon_last_out_of_memory", [&] {
    check_structure(require(out, "out"), "out");
    if (!last_out_of_memory)
      throw std::invalid_argument("no request of this thread has run out of memory");
    hand_over({.struct_bytes = 0,
               .requested_bytes = last_out_of_memory->requested_bytes,
               .allocated_bytes = last_out_of_memory->allocated_bytes,
               .reserved_bytes = last_out_of_memory->reserved_bytes,
               .limit_bytes = last_out_of_memory->limit_bytes,
               .largest_free_bytes = last_out_of_memory->largest_free_bytes},
              *out);
  });
}

void tenon_string_free(char* text) { std::free(text); }
