// Files and folders that are gone when the test is over. Their names are unique, since tests run
// side by side, each in a process of its own.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace tenon::testing {

inline std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// A path nobody else uses; `ending` names the format, like ".csv".
inline std::string unique_path(std::string_view ending) {
  static int count = 0;
  return (std::filesystem::temp_directory_path() /
          ("tenon_test_" + std::to_string(::getpid()) + "_" + std::to_string(count++) +
           std::string(ending)))
      .string();
}

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(unique_path("")) { std::filesystem::create_directories(path_); }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view ending, std::string_view contents = "")
      : path_(unique_path(ending)) {
    std::ofstream(path_, std::ios::binary) << contents;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }
  std::string contents() const { return testing::contents(path_); }

 private:
  std::string path_;
};

}  // namespace tenon::testing
