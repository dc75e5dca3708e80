// From exceptions to status codes.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

#include "tenon/tenon.h"

namespace tenon::c {

// What only this interface can find wrong.
class InvalidHandle : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
class InUse : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Keeps the message of the exception in flight for tenon_last_error, and says what it is.
tenon_status report_current_exception(const char* function) noexcept;

// Runs a function's body. `function` is its name, for messages.
template <typename Body>
tenon_status guarded(const char* function, Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return TENON_OK;
  } catch (...) {
    return report_current_exception(function);
  }
}

// An argument that must not be null.
template <typename T>
T& require(T* pointer, const char* name) {
  if (pointer == nullptr) throw std::invalid_argument(std::string(name) + " is null");
  return *pointer;
}

// Throws std::invalid_argument for a structure's size that is not its own. structures.h also takes
// those of earlier headers.
void check_struct_bytes(std::size_t given, std::size_t own, const char* name);

// A copy that tenon_string_free gives back.
char* copy_text(const std::string& text);

}  // namespace tenon::c
