// Runs a measurement in a process of its own, so that a library's bug takes no other with it.
#pragma once

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>

namespace tenon::bench {

using Say = std::function<void(const std::string&)>;

// What `measure` says, in a child of this process. Throws std::runtime_error with what was said and
// the message of an exception there, or the signal that ended it. Requires: no thread runs here.
inline std::string ask_child(const std::function<void(const Say&)>& measure) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  std::fflush(stdout);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("no process");
  if (child == 0) {
    const Say say = [&](const std::string& text) {
      if (write(ends[1], text.data(), text.size()) < 0) _exit(1);
    };
    try {
      measure(say);
    } catch (const std::exception& e) {
      say(e.what());
      _exit(1);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string said;
  char some[4096];
  for (ssize_t n; (n = read(ends[0], some, sizeof some)) > 0;)
    said.append(some, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) said += fmt::format("ended by: {}", strsignal(WTERMSIG(status)));
  if (status != 0) throw std::runtime_error(said);
  return said;
}

}  // namespace tenon::bench
