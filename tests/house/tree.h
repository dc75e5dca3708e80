// The tree that the tests of this folder read.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace tenon::testing {

inline const std::filesystem::path kRoot = TENON_SOURCE_DIR;

inline std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace tenon::testing
