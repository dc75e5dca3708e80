// How fast recordings are read, and with how much memory: shipped ones, and one as large as wanted.
// Time is the reading thread's processor time, so that other programs do not count.
//   bench_import [SIZE]     for example 1GiB; 64MiB without
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "repeated.h"
#include "tenon/base/byte_size.h"
#include "tenon/trace/csv.h"
#include "tenon/trace/file_bytes.h"
#include "tenon/trace/load.h"
#include "tenon/trace/snapshot_writer.h"

namespace {

using namespace tenon;

double processor_seconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

struct Reading {
  double seconds = 0;
  double peak_mib = 0;  // resident, over what the process had before
  double events = 0;
};

// In a process of its own, whose memory is nobody else's.
Reading read_in_child(const std::string& path) {
  int ends[2];
  Reading reading;
  if (::pipe(ends) != 0) return reading;
  const pid_t child = ::fork();
  if (child == 0) {
    rusage before = {};
    ::getrusage(RUSAGE_SELF, &before);
    const double start = processor_seconds();
    const Snapshot snapshot = load_snapshot(path);
    reading.seconds = processor_seconds() - start;
    rusage after = {};
    ::getrusage(RUSAGE_SELF, &after);
    reading.peak_mib = static_cast<double>(after.ru_maxrss - before.ru_maxrss) / 1024;
    for (const Trace& trace : snapshot.traces)
      reading.events += static_cast<double>(trace.events.size());
    const bool sent = ::write(ends[1], &reading, sizeof reading) == sizeof reading;
    ::_exit(sent ? 0 : 1);
  }
  if (::read(ends[0], &reading, sizeof reading) != sizeof reading) reading.seconds = -1;
  ::close(ends[0]);
  ::close(ends[1]);
  ::waitpid(child, nullptr, 0);
  return reading;
}

void report(const std::string& name, const std::string& path) {
  const double mb = static_cast<double>(std::filesystem::file_size(path)) / 1e6;
  // The best of a few: other programs only ever slow it down.
  Reading best;
  const int passes = mb < 20 ? 9 : 3;
  for (int pass = 0; pass < passes; ++pass) {
    const Reading reading = read_in_child(path);
    if (pass == 0 || reading.seconds < best.seconds) best = reading;
  }
  fmt::print("{:<34} {:>8.1f} MB  {:>9.0f} events  {:>7.1f} MB/s  {:>7.1f} MiB resident\n", name,
             mb, best.events, mb / best.seconds, best.peak_mib);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t wanted = argc > 1 ? parse_byte_size(argv[1]) : 64 * kMiB;
  const std::string folder = TENON_SOURCE_DIR "/data/snapshots/";
  std::fflush(stdout);
  for (const char* name : {"gpt2", "multistream_prefetch", "gnn_sampled"})
    report(fmt::format("{}.pickle", name), folder + name + ".pickle");

  const std::string pickle =
      (std::filesystem::temp_directory_path() / fmt::format("bench_import_{}.pickle", ::getpid()))
          .string();
  const std::string csv = pickle + ".csv";
  const pid_t maker = ::fork();  // so that this process stays small
  if (maker == 0) {
    const Snapshot once = load_snapshot(folder + "gpt2.pickle");
    const auto bytes_once = static_cast<double>(std::filesystem::file_size(folder + "gpt2.pickle"));
    const Trace all =
        bench::repeated(once.traces[0], static_cast<int>(static_cast<double>(wanted) /
                                                         (bytes_once * 0.75)) + 1);
    write_file(pickle, format_snapshot(std::span(&all, 1), once.segments));
    write_csv(all, csv);
    ::_exit(0);
  }
  ::waitpid(maker, nullptr, 0);
  report("gpt2 again and again, pickle", pickle);
  report("gpt2 again and again, CSV", csv);
  std::filesystem::remove(pickle);
  std::filesystem::remove(csv);
  return 0;
}
