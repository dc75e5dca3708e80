// What is fuzzed: functions that take any bytes and must not crash, hang or break a promise.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <vector>

#include "tenon/base/error.h"

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

// Whether `read` returns; a refusal (ParseError) is none.
template <typename Read>
bool accepts(Read&& read) {
  try {
    read();
    return true;
  } catch (const ParseError&) {
    return false;
  }
}

// Takes numbers from the input, for targets that interpret it; zeros when it is used up.
class InputNumbers {
 public:
  explicit InputNumbers(std::string_view bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }

  template <typename Number>
  Number take() {
    Number value = 0;
    const std::size_t count = std::min(sizeof value, bytes_.size());
    std::memcpy(&value, bytes_.data(), count);
    bytes_.remove_prefix(count);
    return value;
  }

 private:
  std::string_view bytes_;
};

}  // namespace tenon::fuzz
