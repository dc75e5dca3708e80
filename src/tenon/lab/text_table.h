// Columns of text that line up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tenon {

// A table for a terminal: the first column is left-aligned, the others right-aligned.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header) { add(std::move(header)); }

  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Each line starts with `indent` spaces and ends without any.
  std::string format(std::size_t indent = 2) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// 35283 -> "35,283".
std::string grouped(std::uint64_t number);

// Part of a whole: "12.3 %"; of nothing, "-".
std::string format_share(std::uint64_t part, std::uint64_t whole);

// 1234567 ns -> "1.23 ms"; 0 -> "0".
std::string format_duration_ns(double nanoseconds);

}  // namespace tenon
