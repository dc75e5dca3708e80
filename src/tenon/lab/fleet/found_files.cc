#include "tenon/lab/fleet/found_files.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tenon/base/error.h"

namespace tenon {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

class FileFinder {
 public:
  FileFinder(const std::string& folder, const std::string& without) : root_(folder) {
    struct stat info = {};
    if (::stat(without.c_str(), &info) == 0) seen_.insert({info.st_dev, info.st_ino});
    if (::stat(folder.c_str(), &info) != 0) refuse(std::strerror(errno));
    if (!S_ISDIR(info.st_mode)) refuse("not a folder");
    if (!seen_.insert({info.st_dev, info.st_ino}).second)
      refuse("the results cannot be in the folder itself");
    if (const int reason = read(""); reason != 0) refuse(std::strerror(reason));
    read_all();
  }

  FoundFiles take() {
    const auto by_path = [](const auto& a, const auto& b) { return a.path < b.path; };
    std::sort(found_.files.begin(), found_.files.end(), by_path);
    std::sort(found_.left_out.begin(), found_.left_out.end(), by_path);
    return std::move(found_);
  }

 private:
  [[noreturn]] void refuse(const char* reason) const {
    throw InvalidArgument(fmt::format("{}: {}", root_, reason));
  }

  // In order: of two links to a folder the first is followed. One folder is open at a time.
  void read_all() {
    while (!left_.empty()) {
      const std::string path = std::move(left_.back());
      left_.pop_back();
      add(path);
    }
  }

  // The system's error, or 0. `inside` is empty or ends with a slash.
  int read(const std::string& inside) {
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir((root_ + "/" + inside).c_str()),
                                                     &::closedir);
    if (folder == nullptr) return errno;
    const auto first = static_cast<std::ptrdiff_t>(left_.size());
    const auto next = [&] { return errno = 0, ::readdir(folder.get()); };
    while (const dirent* entry = next())
      if (entry->d_name[0] != '.') left_.push_back(inside + entry->d_name);
    const int reason = errno;
    std::sort(left_.begin() + first, left_.end(), std::greater<>());
    return reason;
  }

  void add(const std::string& path) {
    struct stat info = {};
    if (::stat((root_ + "/" + path).c_str(), &info) != 0) {
      leave_out(path, std::strerror(errno));
    } else if (S_ISREG(info.st_mode)) {
      found_.files.push_back({path, static_cast<std::uint64_t>(info.st_size)});
    } else if (!S_ISDIR(info.st_mode)) {
      leave_out(path, fmt::format("{}, not a file", kind_of(info.st_mode)));
    } else if (path.ends_with(kResultsEnding)) {
      return;
    } else if (seen_.insert({info.st_dev, info.st_ino}).second) {
      if (const int reason = read(path + "/"); reason != 0)
        leave_out(path, std::strerror(reason));
    } else {
      add_again(path);
    }
  }

  // A folder that was seen: the results, or behind a link.
  void add_again(const std::string& path) {
    struct stat info = {};
    if (::lstat((root_ + "/" + path).c_str(), &info) == 0 && S_ISLNK(info.st_mode))
      leave_out(path, "a symbolic link to a folder that is read already");
  }

  void leave_out(const std::string& path, std::string reason) {
    found_.left_out.push_back({path, std::move(reason)});
  }

  const std::string root_;
  std::set<std::pair<dev_t, ino_t>> seen_;  // folders
  std::vector<std::string> left_;           // to add, the next one last
  FoundFiles found_;
};

}  // namespace

FoundFiles find_files(const std::string& folder, const std::string& without) {
  return FileFinder(folder, without).take();
}

}  // namespace tenon
