#include "tenon/trace/recording_place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tenon/base/write_target.h"

namespace tenon {
namespace {

std::string with_number(std::string_view path) {
  std::string out(path);
  if (const std::size_t at = out.find("%p"); at != out.npos)
    out.replace(at, 2, fmt::format("{}", ::getpid()));
  return out;
}

}  // namespace

std::string with_inner_ending(std::string_view path, std::string_view inner) {
  const std::size_t name = path.find_last_of('/') + 1;  // npos + 1 is 0
  const std::size_t dot = path.find('.', name == path.size() ? name : name + 1);
  const std::size_t at = dot == path.npos ? path.size() : dot;
  return fmt::format("{}.{}{}", path.substr(0, at), inner, path.substr(at));
}

RecordingPlace::RecordingPlace(std::string_view path)
    : path_(with_number(path)), process_(::getpid()), found_(look()) {}

RecordingPlace::Found RecordingPlace::look() const {
  WriteTarget target;
  if (find_write_target(path_, target) != 0 || target.is_straight() || !target.exists) return {};
  return {target.info.st_dev, target.info.st_ino, target.info.st_mtim};
}

bool RecordingPlace::is_anothers() const {
  if (::getpid() != process_) return true;
  const Found now = look();
  if (now.inode == 0) return false;
  return now.device != found_.device || now.inode != found_.inode ||
         now.changed.tv_sec != found_.changed.tv_sec ||
         now.changed.tv_nsec != found_.changed.tv_nsec;
}

std::string RecordingPlace::own_path() const {
  return with_inner_ending(path_, fmt::format("{}", ::getpid()));
}

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
