// The built command, run as a user would.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "support/temporary.h"

namespace tenon::testing {

struct Outcome {
  int status = -1;  // what the process ended with; -1: by a signal
  std::string out;
  std::string err;
};

// A file of the tree's data/.
inline std::string shipped(const std::string& name) { return TENON_SOURCE_DIR "/data/" + name; }
inline const std::string kGpt2 = shipped("snapshots/gpt2.pickle");

// `arguments` go through the shell, after `before` (NAME=value ...); nothing is on standard input.
inline Outcome tenon_command(const std::string& arguments, const std::string& before = "") {
  const TemporaryFile out(".out");
  const TemporaryFile err(".err");
  const int raw = std::system((before + " " TENON_COMMAND " " + arguments + " >" + out.path() +
                               " 2>" + err.path() + " </dev/null")
                                  .c_str());
  return {WIFEXITED(raw) ? WEXITSTATUS(raw) : -1, out.contents(), err.contents()};
}

}  // namespace tenon::testing
