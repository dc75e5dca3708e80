// Files of traces, by their handles.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "objects.h"

namespace tenon::c {

inline const TracesObject& find_traces(tenon_traces traces) {
  return Handles::find<TracesObject>(traces);
}

// Throws std::invalid_argument for none, and for one without events.
std::vector<const TracesObject*> find_files(const tenon_traces* files, std::size_t count);

// A number of an option, from 0 on. Throws std::invalid_argument.
inline int within(const char* name, int value, int most) {
  if (value < 0 || value > most)
    throw std::invalid_argument(fmt::format("{} is {}: it may be 0 to {}", name, value, most));
  return value;
}
inline constexpr int kMostThreads = 256;

}  // namespace tenon::c
