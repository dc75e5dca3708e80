// Ranks that a launcher started.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace tenon::testing {

// A line of /proc/PID/NAME; empty where the process is gone.
inline std::string process_line(const std::string& process, const char* name) {
  std::ifstream file("/proc/" + process + "/" + name);
  std::string line;
  std::getline(file, line);
  return line;
}

// "1234 (tenon-training) S 1233 ...": the parent of a process whose name has no space.
inline std::string parent_of(const std::string& process) {
  std::istringstream stat(process_line(process, "stat"));
  std::string word;
  for (int i = 0; i < 4; ++i) stat >> word;
  return word;
}

// The ranks with TENON_TEST_RUN=`mark`, without their launcher and their own children.
inline std::vector<pid_t> ranks_of(const std::string& mark) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (process_line(name, "comm") == "tenon-training" &&
        process_line(parent_of(name), "comm") != "tenon-training" &&
        process_line(name, "environ").find("TENON_TEST_RUN=" + mark) != std::string::npos)
      found.push_back(std::stoi(name));
  }
  return found;
}

}  // namespace tenon::testing
