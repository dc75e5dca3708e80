// The exception types of Tenon. Failure is a value inside the library and is thrown once, at the
// outermost call. The exceptions derive from the standard types, so a caller who knows only those
// still catches them.
//
// An exception is a value: thread-safe while no thread writes it. O(length of the message).
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace tenon {

// A bad argument: names the argument, its value and what would be accepted.
class InvalidArgument : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// A pointer that this allocator did not hand out, or that it has already taken back.
class InvalidPointer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A driver call that failed for another reason than lack of memory.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A bug in Tenon itself: an invariant does not hold.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

namespace detail {
template <typename E>
[[noreturn, gnu::cold]] void raise_formatted(fmt::string_view text, fmt::format_args arguments);
}  // namespace detail

// Throws E, one of the four above, with a message in fmt's syntax. Small where it stands, since
// formatting and throwing are elsewhere.
template <typename E, typename... Arguments>
[[noreturn]] void raise(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  detail::raise_formatted<E>(text, fmt::make_format_args(arguments...));
}

// A file or text that cannot be read: "name:line:column: reason". Line and column count from 1;
// 0 means that the format has none, and the offset in bytes is in the reason instead.
class ParseError : public std::runtime_error {
 public:
  ParseError(std::string name, std::uint64_t line, std::uint64_t column, std::string reason);

  // The parts of the message: the file, the place in it (0: not known), what is wrong.
  const std::string& name() const { return name_; }
  std::uint64_t line() const { return line_; }
  std::uint64_t column() const { return column_; }
  const std::string& reason() const { return reason_; }

 private:
  std::string name_;
  std::uint64_t line_;
  std::uint64_t column_;
  std::string reason_;
};

// Memory that is held for later, and by what.
struct IdleHolder {
  std::string name;  // "scope pool over caching"
  std::uint64_t bytes = 0;
};

// What an allocator knew when it gave up.
struct OutOfMemoryDetails {
  std::string allocator;                // name of the policy
  std::string device;                   // "sim:0"
  std::uint64_t requested_bytes = 0;    // what the caller asked for
  std::uint64_t allocated_bytes = 0;    // in blocks that are in use
  std::uint64_t reserved_bytes = 0;     // held from the driver
  std::uint64_t limit_bytes = 0;        // capacity or limit in force; 0 when there is none
  std::uint64_t largest_free_bytes = 0; // largest free block inside what is reserved
  std::vector<IdleHolder> idle;         // what pools above it keep, and could not give back
  std::string advice;                   // what would help; may be empty
};

// Memory that could not be had. what() has the numbers and what would help.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(OutOfMemoryDetails details);

  const char* what() const noexcept override { return message_.c_str(); }
  // The numbers of the message.
  const OutOfMemoryDetails& details() const { return details_; }

 private:
  OutOfMemoryDetails details_;
  std::string message_;
};

}  // namespace tenon
