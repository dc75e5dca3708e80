// One line that rewrites itself.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <string>

#include "tenon/trace/load.h"

namespace tenon::command {

// On standard error, and on a terminal only.
class ProgressLine {
 public:
  ProgressLine() : shown_(::isatty(STDERR_FILENO) == 1) {}
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const std::string& text) const {
    if (shown_) fmt::print(stderr, "\r\033[K{}", text);
  }
  void clear() const {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }

 private:
  const bool shown_;
};

// Reads a file of any format, showing how far it is.
inline Snapshot load_with_progress(const std::string& path, const ProgressLine& line) {
  line.show(fmt::format("reading {}", path));
  return load_snapshot(path, [&](std::size_t done, std::size_t all) {
    line.show(fmt::format("reading {}: {} %", path, all == 0 ? 100 : done * 100 / all));
  });
}

}  // namespace tenon::command
