// A file that is gone when the test is over.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace tenon::testing {

class TemporaryFile {
 public:
  // `ending` names the format, like ".csv".
  explicit TemporaryFile(std::string_view ending, std::string_view contents = "") {
    static int count = 0;
    path_ = (std::filesystem::temp_directory_path() /
             ("tenon_test_" + std::to_string(::getpid()) + "_" + std::to_string(count++) +
              std::string(ending)))
                .string();
    std::ofstream(path_, std::ios::binary) << contents;
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }
  std::string contents() const {
    std::ifstream file(path_, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

 private:
  std::string path_;
};

}  // namespace tenon::testing
