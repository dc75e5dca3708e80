#include "tenon/base/write_target.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

namespace tenon {
namespace {

constexpr int kMostLinks = 40;  // as Linux follows

// The number in "/proc/self/fd/1", by whatever name the folder is reached; -1 for other paths.
int own_descriptor(const std::string& path) {
  const std::string name = file_name_of(path);
  if (name.empty() || name.size() > 9 ||
      !std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return -1;
  std::array<char, PATH_MAX> folder;
  if (::realpath(folder_of(path).c_str(), folder.data()) == nullptr) return -1;
  return folder.data() == fmt::format("/proc/{}/fd", ::getpid()) ? std::atoi(name.c_str()) : -1;
}

int check_descriptor(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags < 0 || (flags & O_ACCMODE) == O_RDONLY ? EBADF : 0;
}

}  // namespace

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string file_name_of(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);  // npos + 1 is 0
}

int find_write_target(const std::string& path, WriteTarget& target) {
  target = {};
  target.path = path;
  for (int links = 0;; ++links) {
    target.descriptor = own_descriptor(target.path);
    if (target.descriptor >= 0) return check_descriptor(target.descriptor);
    if (::lstat(target.path.c_str(), &target.info) != 0) {
      if (errno != ENOENT || path.empty()) return errno;
      return file_name_of(target.path).empty() ? EISDIR : 0;
    }
    if (!S_ISLNK(target.info.st_mode)) break;
    if (links == kMostLinks) return ELOOP;
    std::array<char, PATH_MAX> to;
    const ssize_t length = ::readlink(target.path.c_str(), to.data(), to.size());
    if (length < 0) return errno;
    const std::string next(to.data(), static_cast<std::size_t>(length));
    target.path = next.starts_with('/') ? next : folder_of(target.path) + "/" + next;
  }
  target.exists = true;
  if (S_ISDIR(target.info.st_mode)) return EISDIR;
  return ::faccessat(AT_FDCWD, target.path.c_str(), W_OK, AT_EACCESS) == 0 ? 0 : errno;
}

}  // namespace tenon
