// The environment variables that Tenon reads. Thread-safe while no thread changes it.
#pragma once

#include <span>
#include <string_view>

namespace tenon {

struct EnvironmentVariable {
  const char* name;
  const char* read_by;              // a library or program
  const char* meaning;
  const char* allowed;              // for messages: "a whole number from 1 to 4096"
  bool (*allows)(std::string_view); // null: any text
};

// All of them. tests/house compares them with the sources.
std::span<const EnvironmentVariable> environment_variables();

// The value of a variable of the table; empty where it is not set. Throws InvalidArgument, with the
// variable, its value and what is allowed, for a value that is not.
std::string_view environment_value(std::string_view name);

// environment_value of each, so that a program refuses a bad value before it works.
void check_environment();

}  // namespace tenon
