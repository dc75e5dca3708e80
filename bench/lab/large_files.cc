// What the command needs for huge recordings: time and memory of each subcommand, run as a user
// runs it, on a shipped snapshot with its call stacks again and again, and on one snapshot for each
// of 64 ranks. Wanted, on two cores: explain 12 s, view 30 s, advise 60 s, each in 1.2 GiB; report
// 60 s.
//   bench_large_files [EVENTS [COMMAND...]]     9000000 and all of them without
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "../trace/repeated.h"
#include "tenon/base/byte_size.h"
#include "tenon/trace/load.h"
#include "tenon/trace/file_bytes.h"
#include "tenon/trace/snapshot_writer.h"

namespace {

using namespace tenon;
namespace fs = std::filesystem;

constexpr int kRanks = 64;
const std::string kSnapshot = TENON_SOURCE_DIR "/data/snapshots/gpt2.pickle";

// A folder that goes when the program ends.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / fmt::format("bench_large_files_{}", ::getpid())) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  const fs::path path_;
};

// In a process of its own, so that what it needs is not counted as the command's.
template <typename Make>
void in_child(Make&& make) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    make();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
}

// One snapshot of about so many events, and its size.
std::string make_large(const Folder& folder, std::uint64_t events) {
  const std::string path = folder.file("large.pickle");
  in_child([&] {
    const Snapshot once = load_snapshot(kSnapshot);
    const std::uint64_t in_one = once.traces[0].events.size() + 1;
    const Trace all =
        bench::repeated(once.traces[0], static_cast<int>((events + in_one - 1) / in_one));
    write_file(path, format_snapshot(std::span(&all, 1), once.segments));
  });
  fmt::print("one snapshot of {:.1f} million events, {}\n", static_cast<double>(events) / 1e6,
             format_byte_size(fs::file_size(path)));
  return path;
}

// A snapshot for each rank: the same program, each rank with a few blocks more than the one before.
std::vector<std::string> make_ranks(const Folder& folder) {
  std::vector<std::string> paths;
  for (int rank = 0; rank < kRanks; ++rank)
    paths.push_back(folder.file(fmt::format("rank_{}.pickle", rank)));
  in_child([&] {
    const Snapshot once = load_snapshot(kSnapshot);
    for (int rank = 0; rank < kRanks; ++rank) {
      Trace trace = once.traces[0];
      for (TraceEvent& event : trace.events)
        if (event.block % 64 < static_cast<std::uint32_t>(rank)) event.size_bytes += 512;
      write_file(paths[static_cast<std::size_t>(rank)],
                 format_snapshot(std::span(&trace, 1), once.segments));
    }
  });
  fmt::print("{} ranks, {} each\n", kRanks, format_byte_size(fs::file_size(paths[0])));
  return paths;
}

// Runs the command and prints what it took. False when it failed.
bool measure(const std::string& name, const std::vector<std::string>& arguments) {
  std::fflush(stdout);
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = ::fork();
  if (child == 0) {
    std::vector<char*> words = {const_cast<char*>(TENON_COMMAND)};
    for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    if (std::freopen("/dev/null", "w", stdout) != nullptr) ::execv(TENON_COMMAND, words.data());
    ::_exit(127);
  }
  int status = 0;
  rusage usage = {};
  ::wait4(child, &status, 0, &usage);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double busy = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                      static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
  const bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  fmt::print("  {:<10} {:>7.1f} s, {:>7.1f} s of processor time, {:>6.2f} GiB resident{}\n", name,
             seconds, busy, static_cast<double>(usage.ru_maxrss) / (1 << 20),
             good ? "" : "  FAILED");
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t events = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 9'000'000;
  const std::vector<std::string> wanted(argv + std::min(argc, 2), argv + argc);
  const auto asked = [&](const char* name) {
    return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
  };
  const Folder folder;
  bool good = events > 0;
  const std::string large = make_large(folder, std::max<std::uint64_t>(events, 1));
  if (asked("explain")) good &= measure("explain", {"explain", large});
  if (asked("plan")) good &= measure("plan", {"plan", large, "-o", folder.file("large.plan")});
  if (asked("view")) good &= measure("view", {"view", large, "-o", folder.file("large.html")});
  if (asked("advise")) good &= measure("advise", {"advise", large});
  if (asked("report")) {
    std::vector<std::string> arguments = make_ranks(folder);
    arguments.insert(arguments.begin(), {"report", "-o", folder.file("ranks.html")});
    good &= measure("report", arguments);
  }
  return good ? 0 : 1;
}
