// What TENON_PRELOAD_STATISTICS asks for, when the program ends.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "large_blocks.h"
#include "tenon/base/byte_size.h"
#include "tenon/memory/host/host_allocator.h"

namespace {

using tenon::preload::LargeBlocks;

// "1": standard error; otherwise a file, which lines are added to.
void write_statistics(const char* where) {
  const tenon::HostAllocator* const allocator = LargeBlocks::allocator();
  if (allocator == nullptr) return;
  const tenon::AllocatorStats stats = allocator->stats();
  const auto bytes = [](std::int64_t count) {
    return tenon::format_byte_size(static_cast<std::uint64_t>(count));
  };
  const std::string line = fmt::format(
      "tenon: process {}: {} requests of 64 KiB and more, {} in all; most at once {}, held for them "
      "{}; {} still in use; {} calls of the system\n",
      ::getpid(), stats.allocation[0].allocated, bytes(stats.requested_bytes[0].allocated),
      bytes(stats.requested_bytes[0].peak), bytes(stats.reserved_bytes[0].peak),
      bytes(stats.requested_bytes[0].current), stats.num_device_alloc + stats.num_device_free);
  int file = STDERR_FILENO;
  if (std::strcmp(where, "1") != 0) {
    file = ::open(where, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0) {
      const std::string error = fmt::format("tenon: TENON_PRELOAD_STATISTICS: {} cannot be written\n",
                                            where);
      static_cast<void>(!::write(STDERR_FILENO, error.data(), error.size()));
      return;
    }
  }
  static_cast<void>(!::write(file, line.data(), line.size()));
  if (file != STDERR_FILENO) ::close(file);
}

__attribute__((constructor)) void begin() { LargeBlocks::start(); }

__attribute__((destructor)) void end() {
  const char* const where = std::getenv("TENON_PRELOAD_STATISTICS");
  if (where != nullptr && *where != '\0') write_statistics(where);
}

}  // namespace
