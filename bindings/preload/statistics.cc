// What TENON_PRELOAD_STATISTICS asks for, when the program ends.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "large_blocks.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/printable.h"
#include "tenon/memory/host/host_allocator.h"

namespace {

using tenon::preload::LargeBlocks;

// Standard error as it was at the start: a program may close it and get its number for a file.
struct stat g_standard_error = {};
bool g_has_standard_error = false;

bool is_standard_error_still_open() {
  struct stat now = {};
  return g_has_standard_error && ::fstat(STDERR_FILENO, &now) == 0 &&
         now.st_dev == g_standard_error.st_dev && now.st_ino == g_standard_error.st_ino;
}

void complain(const char* where, const char* reason) {
  if (!is_standard_error_still_open()) return;
  const std::string error = fmt::format("tenon: TENON_PRELOAD_STATISTICS: {} cannot be written: {}\n",
                                        tenon::one_line(where), reason);
  static_cast<void>(!::write(STDERR_FILENO, error.data(), error.size()));
}

// Whether the recording is written there, which a line would damage.
bool is_recording(const char* where) {
  const char* const recording = std::getenv("TENON_RECORD");
  if (recording == nullptr) return false;
  std::error_code missing;
  return std::strcmp(where, recording) == 0 ||
         std::filesystem::equivalent(where, recording, missing);
}

// "1": standard error; otherwise a file, which lines are added to.
void write_statistics(const char* where) {
  const tenon::HostAllocator* const allocator = LargeBlocks::allocator();
  if (allocator == nullptr) return;
  const tenon::AllocatorStats stats = allocator->stats();
  const auto bytes = [](std::int64_t count) {
    return tenon::format_byte_size(static_cast<std::uint64_t>(count));
  };
  const std::string line = fmt::format(
      "tenon: process {}: {} requests of 64 KiB and more, {} in all; most at once {}, in {} of "
      "addresses; {} still in use; {} calls of the system\n",
      ::getpid(), stats.allocation[0].allocated, bytes(stats.requested_bytes[0].allocated),
      bytes(stats.requested_bytes[0].peak), bytes(stats.reserved_bytes[0].peak),
      bytes(stats.requested_bytes[0].current), stats.num_device_alloc + stats.num_device_free);
  const bool to_file = std::strcmp(where, "1") != 0;
  if (to_file && is_recording(where))
    return complain(where, "TENON_RECORD names it too: give another file");
  // O_NONBLOCK: the program's end does not wait for the reader of a FIFO.
  constexpr int kHow = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK;
  const int file = to_file ? ::open(where, kHow, 0666) : STDERR_FILENO;
  const ssize_t wrote = file < 0 ? -1 : ::write(file, line.data(), line.size());
  const bool written = wrote == static_cast<ssize_t>(line.size());
  const int reason = wrote < 0 ? errno : ENOSPC;
  if (to_file && file >= 0) ::close(file);
  if (!written && to_file) complain(where, std::strerror(reason));
}

__attribute__((constructor)) void begin() {
  LargeBlocks::start();
  g_has_standard_error = ::fstat(STDERR_FILENO, &g_standard_error) == 0;
}

__attribute__((destructor)) void end() {
  const char* const where = std::getenv("TENON_PRELOAD_STATISTICS");
  if (where == nullptr || *where == '\0') return;
  if (std::strcmp(where, "1") != 0 || is_standard_error_still_open()) write_statistics(where);
}

}  // namespace
