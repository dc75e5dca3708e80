// What is fuzzed: functions that take any bytes and must not crash, hang or break a promise.
#pragma once

#include <string_view>
#include <vector>

namespace tenon::fuzz {

// Returns whether the bytes were accepted. Refusals (ParseError, InvalidArgument) are caught by the
// target; whatever else is thrown, and a promise that does not hold (`require`), ends the process.
struct Target {
  std::string_view name;  // and the folder of its corpus
  bool (*run)(std::string_view bytes);
};

// All targets that are linked in.
std::vector<Target>& targets();
// Aborts, listing the names, where there is none.
const Target& find_target(std::string_view name);

struct Registered {
  Registered(std::string_view name, bool (*run)(std::string_view)) {
    targets().push_back({name, run});
  }
};

// Aborts with the text where a promise does not hold.
void require(bool holds, const char* promise);

}  // namespace tenon::fuzz
