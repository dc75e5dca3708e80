// Answers about files, kept in a folder, so that each file is answered once. Thread-safe while no
// two threads answer one path. answer() takes what answer_file() takes, the others O(1).
#pragma once

#include <optional>
#include <string>

#include "tenon/lab/fleet/file_answer.h"

namespace tenon {

// One file for each answer, written whole or not at all, under the hash of the recording's path. It
// holds for a recording with the same path, size and contents, and for the same question. Several
// processes may use one folder at a time. Everything throws std::system_error or
// std::runtime_error, with the path and the reason, where the folder cannot be written.
class AnswerStore {
 public:
  // Makes the folder where there is none.
  AnswerStore(std::string folder, const FileQuestion& question);

  // Answers for the file at `path`, relative to the current folder, unless the answer is there.
  // Throws std::bad_alloc, too.
  void answer(const std::string& path) const;
  // Keeps this reason as the answer until the file is asked about again.
  void fail(const std::string& path, const std::string& reason) const;
  // The answer that is there.
  std::optional<FileAnswer> load(const std::string& path) const;

 private:
  std::string place_of(const std::string& path) const;
  std::string key_of(const std::string& path) const;

  const std::string folder_;
  const FileQuestion question_;
};

}  // namespace tenon
