// The file of a recording that several processes may have been asked for by one name.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace tenon {

// "run.csv.zst", "oom" -> "run.oom.csv.zst".
std::string with_inner_ending(std::string_view path, std::string_view inner);
// "run.%p.csv" -> "run.4711.csv", 4711 being the process's number.
std::string with_number(std::string_view path);
// The same for a process that was forked from the one that was asked: "run.csv" -> "run.4711.csv".
std::string file_of_child(std::string_view path);

// A process replaces the file of an earlier run. What another process of the same run wrote stays:
// the recording then goes to a name with the process's number. "%p" in the path stands for the
// number of the process that asks, so a child of fork has a name of its own. Not thread-safe.
// O(length of the path + ancestors of the process).
//
// A run begins with the first of the process's ancestors that were started with the same
// TENON_RECORD, as a script or mpirun; without any, with the process.
class RecordingPlace {
 public:
  explicit RecordingPlace(std::string_view path);

  std::string path() const;
  // Whether another process of the run wrote there, or may yet: the one that this one was forked
  // from.
  bool is_anothers() const;
  // "run.4711.csv.zst".
  std::string own_path() const;

  // While one lives, no other process that writes a recording into the folder looks or writes.
  // It waits for one second at most: another program may hold such a lock for as long as it runs.
  class Turn {
   public:
    explicit Turn(const RecordingPlace& place);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    int folder_ = -1;
  };

 private:
  // A file's identity and time of change; all zero where there is none, or it is no regular file.
  struct Found {
    dev_t device = 0;
    ino_t inode = 0;
    std::int64_t changed_ns = 0;
    bool operator==(const Found&) const = default;
  };
  Found look() const;

  const std::string asked_;
  const std::string path_;  // of the process that made this
  const pid_t process_;
  const std::int64_t run_began_ns_;  // by its first ancestor; never, without any
  const Found found_;
};

}  // namespace tenon
