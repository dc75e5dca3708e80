// Reading a file of any format, showing how far it is.
#pragma once

#include <fmt/format.h>

#include <string>

#include "progress.h"
#include "tenon/trace/load.h"

namespace tenon::command {

inline Snapshot load_with_progress(const std::string& path, const ProgressLine& line) {
  line.show(fmt::format("reading {}", path));
  return load_snapshot(path, [&](std::size_t done, std::size_t all) {
    line.show(fmt::format("reading {}: {} %", path, all == 0 ? 100 : done * 100 / all));
  });
}

}  // namespace tenon::command
