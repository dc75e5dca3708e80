// One line that rewrites itself.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <string>

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

}  // namespace tenon::command
