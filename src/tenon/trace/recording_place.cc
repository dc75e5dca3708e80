#include "tenon/trace/recording_place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <thread>

#include "tenon/base/write_target.h"

namespace tenon {
namespace {

constexpr std::int64_t kSecondNs = 1'000'000'000;

std::int64_t nanoseconds(const timespec& time) { return time.tv_sec * kSecondNs + time.tv_nsec; }

std::int64_t now_ns(clockid_t clock) {
  timespec now = {};
  ::clock_gettime(clock, &now);
  return nanoseconds(now);
}

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Fields of /proc/PID/stat; a parent of 0 where there is none to be seen.
struct Process {
  pid_t parent = 0;
  std::int64_t began_ns = 0;  // two ticks earlier at most
};

Process look_up(pid_t process) {
  const std::string stat = contents(fmt::format("/proc/{}/stat", process));
  std::istringstream fields(stat.substr(std::min(stat.rfind(')'), stat.size() - 1) + 1));
  std::string skipped;
  Process found;
  std::int64_t ticks = 0;
  fields >> skipped >> found.parent;
  for (int field = 5; field <= 21; ++field) fields >> skipped;
  if (!(fields >> ticks)) return {};
  const std::int64_t boot_ns = now_ns(CLOCK_REALTIME) - now_ns(CLOCK_BOOTTIME);
  // Times of files lag behind the clock by a tick. Better a recording too many than one replaced.
  found.began_ns = boot_ns + (ticks - 1) * (kSecondNs / ::sysconf(_SC_CLK_TCK));
  return found;
}

std::int64_t begin_of_run(std::string_view path) {
  const std::string variable = fmt::format("TENON_RECORD={}", path) + '\0';
  std::int64_t began_ns = std::numeric_limits<std::int64_t>::max();
  for (pid_t process = ::getppid(); process > 1;) {
    const std::string environment = '\0' + contents(fmt::format("/proc/{}/environ", process));
    if (environment.find('\0' + variable) == environment.npos) break;
    const Process found = look_up(process);
    if (found.parent == 0) break;
    began_ns = found.began_ns;
    process = found.parent;
  }
  return began_ns;
}

}  // namespace

std::string with_inner_ending(std::string_view path, std::string_view inner) {
  const std::size_t name = path.find_last_of('/') + 1;  // npos + 1 is 0
  const std::size_t dot = path.find('.', name == path.size() ? name : name + 1);
  const std::size_t at = dot == path.npos ? path.size() : dot;
  return fmt::format("{}.{}{}", path.substr(0, at), inner, path.substr(at));
}

std::string with_number(std::string_view path) {
  std::string out(path);
  if (const std::size_t at = out.find("%p"); at != out.npos)
    out.replace(at, 2, fmt::format("{}", ::getpid()));
  return out;
}

std::string file_of_child(std::string_view path) {
  if (path.find("%p") != path.npos) return with_number(path);
  return with_inner_ending(path, fmt::format("{}", ::getpid()));
}

RecordingPlace::RecordingPlace(std::string_view path)
    : asked_(path),
      path_(with_number(path)),
      process_(::getpid()),
      run_began_ns_(begin_of_run(path)),
      found_(look()) {}

std::string RecordingPlace::path() const { return with_number(asked_); }

RecordingPlace::Found RecordingPlace::look() const {
  WriteTarget target;
  if (find_write_target(path_, target) != 0 || target.is_straight() || !target.exists) return {};
  return {target.info.st_dev, target.info.st_ino, nanoseconds(target.info.st_mtim)};
}

bool RecordingPlace::is_anothers() const {
  if (::getpid() != process_) return path() == path_;
  const Found now = look();
  return now.inode != 0 && (now != found_ || now.changed_ns >= run_began_ns_);
}

std::string RecordingPlace::own_path() const { return file_of_child(path_); }

RecordingPlace::Turn::Turn(const RecordingPlace& place)
    : folder_(::open(folder_of(place.path()).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  for (int tries = 0; tries < 1000 && folder_ >= 0; ++tries) {
    if (::flock(folder_, LOCK_EX | LOCK_NB) == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

RecordingPlace::Turn::~Turn() {
  if (folder_ >= 0) ::close(folder_);
}

}  // namespace tenon
