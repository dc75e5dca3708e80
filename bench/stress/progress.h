// A line on the terminal that says how far a long run is.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>

namespace tenon {

// Writes to stderr where that is a terminal, and nothing elsewhere. Not thread-safe.
class Progress {
 public:
  void show(const std::string& what, std::uint64_t done, std::uint64_t all) {
    const std::uint64_t percent = all == 0 ? 100 : done * 100 / all;
    if (!terminal_ || percent == percent_) return;
    percent_ = percent;
    fmt::print(stderr, "\r{}: {} %\x1b[K", what, percent);
    if (percent == 100) fmt::print(stderr, "\r\x1b[K");
    std::fflush(stderr);
  }

 private:
  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  std::uint64_t percent_ = 101;
};

}  // namespace tenon
