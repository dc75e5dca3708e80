// Files written whole or not at all.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace tenon {

struct WriteTarget;

// Writes pieces one after another; commit() puts them in place. What `path` names decides how:
//
//   nothing           a new file appears, complete, at commit()
//   a regular file    it is replaced at once and keeps its mode and owner; other hard links to it
//                     keep the old contents
//   a symbolic link   the file that it leads to is written, the link stays
//   a device, a FIFO  the pieces go straight there
//   /dev/stdout, /dev/fd/N, /proc/self/fd/N
//                     the pieces go straight to that descriptor, behind what stdio holds for it
//
// The bytes are written to a file without a name (O_TMPFILE) or, where the file system has none, to
// "<name>.<pid>-<n>.tenon-tmp" beside it. They reach the disk before the name is given to them, and
// the folder after it. A process that is killed leaves the earlier file as it was, and at most one
// such name, which the next FileWriter for the same path removes: its lock (flock) is free.
//
// Every function throws std::system_error, with the path and the system's reason. A FileWriter that
// failed, or is destroyed without commit(), leaves the earlier file and no other. Not thread-safe;
// several writers of one path are, the last commit() wins.
class FileWriter {
 public:
  explicit FileWriter(const std::string& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* data, std::size_t size);
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
  void commit();

  // Throws as the constructor would, and changes nothing: for programs that work long before they
  // write.
  static void check(const std::string& path);

 private:
  FileWriter(std::string path, const WriteTarget& found);
  void open_straight();
  void open_beside();
  void take_over_mode();
  void give_name();
  void rename_to_target();
  [[noreturn]] void fail(const char* what) const;

  const std::string path_;    // as given, for messages
  const std::string target_;  // without symbolic links at its end
  const std::string folder_;  // of the target
  std::string temporary_;     // empty: the open file has no name
  const mode_t mode_;         // of the earlier file
  const uid_t owner_;
  const gid_t group_;
  const bool replaces_;   // there is an earlier file
  const bool straight_;   // into a device, a FIFO or a descriptor
  const int descriptor_;  // the one that the path is a name for, or -1
  int file_ = -1;
};

// All of a file at once.
void write_whole_file(const std::string& path, std::string_view bytes);

}  // namespace tenon
