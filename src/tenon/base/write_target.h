// What a path to write to stands for.
#pragma once

#include <sys/stat.h>

#include <string>

namespace tenon {

struct WriteTarget {
  std::string path;     // no symbolic link at its end
  int descriptor = -1;  // of this process, where the path is a name for one
  bool exists = false;
  struct stat info = {};  // where it exists

  // Neither a regular file nor a name that is free: written to without a temporary file.
  bool is_straight() const { return descriptor >= 0 || (exists && !S_ISREG(info.st_mode)); }
};

// Follows symbolic links, also one that leads to nothing yet. Returns 0, or the system's error:
// ELOOP, ENOENT for an empty path, EISDIR for a folder, EACCES for a file that may not be written.
int find_write_target(const std::string& path, WriteTarget& target);

// "a/b" -> "a", "b" -> ".", "/b" -> "/".
std::string folder_of(const std::string& path);
// What comes after the last slash.
std::string file_name_of(const std::string& path);

}  // namespace tenon
