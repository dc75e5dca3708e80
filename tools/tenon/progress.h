// One line that rewrites itself, on a terminal only.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "tenon/base/printable.h"

namespace tenon::command {

class ProgressLine {
 public:
  ProgressLine() : shown_(::isatty(STDERR_FILENO) == 1) {}
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const std::string& text) const {
    if (shown_) fmt::print(stderr, "\r\033[K{}", one_line(text));
  }
  // At most ten times a second; the text is made only then.
  template <typename Make>
  requires requires(Make make) { std::string(make()); }
  void show(Make&& make) {
    if (!shown_) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    show(std::string(make()));
  }
  void clear() const {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }

 private:
  const bool shown_;
  std::chrono::steady_clock::time_point last_{};
};

// "[=====>    ]", for `done` of `all`.
inline std::string progress_bar(std::uint64_t done, std::uint64_t all) {
  constexpr std::uint64_t kWidth = 24;
  const std::uint64_t filled = all == 0 ? kWidth : kWidth * done / all;
  std::string bar(kWidth, ' ');
  for (std::uint64_t i = 0; i < filled; ++i) bar[i] = '=';
  if (filled < kWidth) bar[filled] = '>';
  return "[" + bar + "]";
}

}  // namespace tenon::command
