#include "tenon/base/file_writer.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>
#include <utility>

#include "tenon/base/write_target.h"

namespace tenon {
namespace {

constexpr std::string_view kEnding = ".tenon-tmp";
constexpr int kMostTries = 100;  // names that another process has, or removes meanwhile

// What all temporary names for one target begin with. Names are limited to 255 bytes.
std::string temporary_beginning(const std::string& target) {
  return file_name_of(target).substr(0, 200) + ".";
}

std::string temporary_name(const std::string& folder, const std::string& target) {
  static std::atomic<unsigned> count{0};
  return fmt::format("{}/{}{}-{}{}", folder, temporary_beginning(target), ::getpid(), count++,
                     kEnding);
}

// "<beginning><pid>-<n>.tenon-tmp", as temporary_name makes it.
bool is_temporary(std::string_view name, std::string_view beginning) {
  if (!name.starts_with(beginning) || !name.ends_with(kEnding)) return false;
  name.remove_prefix(beginning.size());
  if (name.size() < kEnding.size()) return false;
  name.remove_suffix(kEnding.size());
  const std::size_t dash = name.find('-');
  constexpr std::string_view kDigits = "0123456789";
  return dash != 0 && dash != name.npos && dash + 1 < name.size() &&
         name.substr(0, dash).find_first_not_of(kDigits) == name.npos &&
         name.substr(dash + 1).find_first_not_of(kDigits) == name.npos;
}

bool lock(int file) { return ::flock(file, LOCK_EX | LOCK_NB) == 0; }

// Removes what killed writers of this target left: names whose lock is free.
void remove_leftovers(const std::string& folder, const std::string& target) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), &::closedir);
  if (entries == nullptr) return;
  const std::string beginning = temporary_beginning(target);
  while (const dirent* entry = ::readdir(entries.get())) {
    if (!is_temporary(entry->d_name, beginning)) continue;
    const int file = ::openat(::dirfd(entries.get()), entry->d_name,
                              O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) continue;
    struct stat info = {};
    if (::fstat(file, &info) == 0 && S_ISREG(info.st_mode) && lock(file))
      ::unlinkat(::dirfd(entries.get()), entry->d_name, 0);
    ::close(file);
  }
}

// File systems and devices that have nothing to bring to the disk say so.
bool sync(int file) {
  return ::fsync(file) == 0 || errno == EINVAL || errno == ENOTSUP || errno == EROFS;
}

std::string link_of(int file) { return fmt::format("/proc/self/fd/{}", file); }

[[noreturn]] void throw_reason(const std::string& path, const char* what, int reason) {
  throw std::system_error(reason, std::generic_category(), fmt::format("{}: {}", path, what));
}

// The target of a path. Throws where nothing can be written there.
WriteTarget checked_target(const std::string& path) {
  WriteTarget found;
  const int reason = find_write_target(path, found);
  if (reason != 0) throw_reason(path, "cannot be written", reason);
  return found;
}

}  // namespace

FileWriter::FileWriter(std::string path, const WriteTarget& found)
    : path_(std::move(path)),
      target_(found.path),
      folder_(folder_of(target_)),
      mode_(found.info.st_mode & 07777),
      owner_(found.info.st_uid),
      group_(found.info.st_gid),
      replaces_(found.exists),
      straight_(found.is_straight()),
      descriptor_(found.descriptor) {}

// From here on the destructor tidies up, also behind an exception of this function.
FileWriter::FileWriter(const std::string& path) : FileWriter(path, checked_target(path)) {
  if (straight_) {
    open_straight();
    return;
  }
  remove_leftovers(folder_, target_);
  open_beside();
  if (replaces_) take_over_mode();
}

void FileWriter::open_straight() {
  file_ = descriptor_ >= 0 ? ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 3)
                           : ::open(target_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (file_ < 0) fail("cannot be written");
}

void FileWriter::open_beside() {
  if (::access("/proc/self/fd", X_OK) == 0) {  // else it could not be given a name
    file_ = ::open(folder_.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (file_ >= 0) {
      lock(file_);
      return;
    }
  }
  for (int tries = 0; tries < kMostTries; ++tries) {
    temporary_ = temporary_name(folder_, target_);
    file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0) {
      if (errno == EEXIST) continue;
      break;
    }
    // Another writer may have taken the name for a leftover before it was locked.
    struct stat info = {};
    const bool taken = !lock(file_) && errno == EWOULDBLOCK;
    if (!taken && ::fstat(file_, &info) == 0 && info.st_nlink > 0) return;
    ::close(std::exchange(file_, -1));
  }
  fail("cannot be written: a temporary file in its folder cannot be created");
}

// The owner is kept where that is allowed; bits that give its rights to others, only with it.
void FileWriter::take_over_mode() {
  struct stat info = {};
  const bool same = ::fstat(file_, &info) == 0 && info.st_uid == owner_ && info.st_gid == group_;
  const bool owned = same || ::fchown(file_, owner_, group_) == 0;
  if (::fchmod(file_, owned ? mode_ : mode_ & 0777) != 0 && errno != EPERM)
    fail("cannot be written");
}

FileWriter::~FileWriter() {
  if (file_ < 0) return;
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  ::close(file_);
}

void FileWriter::write(const void* data, std::size_t size) {
  if (straight_) std::fflush(stdout);  // in order, where it is the same file
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(file_, at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      pollfd ready = {file_, POLLOUT, 0};
      ::poll(&ready, 1, -1);
      continue;
    }
    if (written == 0) errno = EIO;
    if (written <= 0) fail("cannot be written");
    at += written;
    size -= static_cast<std::size_t>(written);
  }
}

void FileWriter::commit() {
  if (!sync(file_)) fail("cannot be written");
  if (!straight_) {
    give_name();
    const int folder = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool synced = folder < 0 || sync(folder);  // not everybody may open a folder
    const int reason = errno;
    if (folder >= 0) ::close(folder);
    errno = reason;
    if (!synced) fail("is written, but its folder cannot be brought to the disk");
  }
  ::close(std::exchange(file_, -1));
}

void FileWriter::give_name() {
  if (temporary_.empty()) {
    const std::string unnamed = link_of(file_);
    if (!replaces_ && ::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, target_.c_str(),
                               AT_SYMLINK_FOLLOW) == 0)
      return;
    if (!replaces_ && errno != EEXIST) fail("cannot be written");
    // A name that exists can be replaced by a rename alone.
    for (int tries = 0; tries < kMostTries; ++tries) {
      std::string name = temporary_name(folder_, target_);
      if (::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
        temporary_ = std::move(name);
        break;
      }
      if (errno != EEXIST) break;
    }
    if (temporary_.empty()) fail("cannot be written");
  }
  rename_to_target();
}

void FileWriter::rename_to_target() {
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) fail("cannot be replaced");
  temporary_.clear();
}

void FileWriter::fail(const char* what) const { throw_reason(path_, what, errno); }

void FileWriter::check(const std::string& path) {
  if (!checked_target(path).is_straight()) FileWriter unused(path);
}

void write_whole_file(const std::string& path, std::string_view bytes) {
  FileWriter file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace tenon
