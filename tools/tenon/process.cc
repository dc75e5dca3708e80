#include "process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include "commands.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/base/printable.h"
#include "tenon/trace/recording_scope.h"

namespace tenon::command {
namespace {

constexpr int kBrokenPipe = kSignalled + SIGPIPE;

// The next file that is opened would get the number of a closed standard descriptor, and what is
// printed would go into it. What takes its place refuses to be used.
void fill_closed_descriptors() {
  for (int wanted = STDIN_FILENO; wanted <= STDERR_FILENO; ++wanted)
    if (::fcntl(wanted, F_GETFD) < 0 && errno == EBADF)
      ::open("/dev/null", wanted == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

// Ends the process where neither memory nor stdio can be used.
[[noreturn]] void end_with(std::string_view line) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  ::_exit(kBadInput);
}

// Reading a mapped file beyond its end.
void on_bus_error(int) {
  end_with("tenon: a file became shorter while it was read; run the command again\n");
}

// An exception takes memory itself. Where there is none, a throw ends the process with SIGABRT.
// This runs before the constructors of static objects, which allocate. The pointer is volatile,
// since clang removes a malloc() and its free() where nothing else reads the pointer.
[[gnu::constructor(101)]] void require_memory_for_exceptions() {
  constexpr std::size_t kLeast = 256 << 10;
  void* volatile memory = std::malloc(kLeast);
  if (memory == nullptr)
    end_with("tenon: not enough memory to start: raise this process's limit (ulimit -v)\n");
  std::free(memory);
}

// Note [Reserves]. nlohmann-json's destructors allocate; an exception there ends the process. So
// two blocks of memory are kept for them. The first request that fails gets the first block. The
// second one is for requests that fail while an exception unwinds the stack.
constexpr std::size_t kReserveBytes = 4 << 20;
std::atomic<void*> first_reserve{nullptr};
std::atomic<void*> second_reserve{nullptr};

void find_memory() {
  void* reserve = first_reserve.exchange(nullptr);
  if (reserve == nullptr && std::uncaught_exceptions() > 0)
    reserve = second_reserve.exchange(nullptr);
  if (reserve == nullptr) throw std::bad_alloc();
  std::free(reserve);
}

void keep_reserves() {
  first_reserve = std::malloc(kReserveBytes);
  second_reserve = std::malloc(kReserveBytes);
  std::set_new_handler(find_memory);
}

struct Reporting {
  std::string prefix;
  std::function<void()> before;
};
Reporting& reporting() {
  static auto& how = *new Reporting;
  return how;
}

// A file or an argument may put megabytes into a message: its beginning and end are shown.
std::string shortened(std::string_view line) {
  constexpr std::size_t kMost = 8 << 10;  // room for two paths
  constexpr std::size_t kEnd = 1 << 10;
  if (line.size() <= kMost) return std::string(line);
  return fmt::format("{} [...] {}", line.substr(0, kMost - kEnd), line.substr(line.size() - kEnd));
}

int report(int status, std::string_view message) {
  if (reporting().before) reporting().before();
  tell(fmt::format("{}{}", reporting().prefix, message));
  return status;
}

std::string out_of_memory_message() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    return fmt::format(
        "not enough memory: this process may use {} (ulimit -v): raise that limit, or give the "
        "command a smaller file",
        format_byte_size(limit.rlim_cur));
  return "not enough memory on this machine: give the command a smaller file, or more memory";
}

int output_failed(int reason) {
  if (reason == EPIPE) return kBrokenPipe;
  return report(kFailure, fmt::format("standard output cannot be written: {}",
                                      reason == 0 ? "an earlier error" : std::strerror(reason)));
}

// Commands and their threads, whose stacks follow the same limit, were seen to need 64 KiB.
void require_stack() {
  constexpr rlim_t kLeast = 256 << 10;
  rlimit limit = {};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kLeast) return;
  throw InvalidArgument(fmt::format("the stack may take {} (ulimit -s): raise that limit to {}",
                                    format_byte_size(limit.rlim_cur), format_byte_size(kLeast)));
}

// Whether two names are those of one file, which need not exist yet.
bool are_one_file(const std::filesystem::path& one, const std::filesystem::path& other) {
  std::error_code failed;
  if (std::filesystem::equivalent(one, other, failed)) return true;
  const auto resolved = [&](const std::filesystem::path& name) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(name, failed), failed);
  };
  const std::filesystem::path first = resolved(one);
  return !failed && first == resolved(other) && !failed;
}

int run_catching(const std::function<int()>& run) {
  try {
    require_stack();
    return run();
  } catch (const ParseError& error) {
    return report(kBadInput, error.what());
  } catch (const InvalidArgument& error) {
    return report(kBadInput, error.what());
  } catch (const OutOfMemory& error) {
    return report(kFailure, error.what());
  } catch (const std::bad_alloc&) {
    return report(kBadInput, out_of_memory_message());
  } catch (const std::system_error& error) {
    if (std::ferror(stdout) != 0) return output_failed(error.code().value());
    if (error.code().value() == EPIPE) return kBrokenPipe;
    return report(kFailure, error.what());
  } catch (const std::exception& error) {
    return report(kFailure, error.what());
  }
}

}  // namespace

void tell(std::string_view message) {
  std::string line = "tenon: ";
  for (std::size_t at = 0; at <= message.size();) {
    const std::size_t end = std::min(message.find('\n', at), message.size());
    line += one_line(shortened(message.substr(at, end - at))) + "\n";
    at = end + 1;
  }
  // Unchecked: what a broken standard error refuses cannot be said elsewhere.
  std::fwrite(line.data(), 1, line.size(), stderr);
}

// The recording is written at the end, over what the command reads and what it wrote.
void require_recording_elsewhere(int argc, char** argv) {
  const char* recording = std::getenv("TENON_RECORD");
  if (recording == nullptr || *recording == '\0') return;
  for (int i = 1; i < argc; ++i) {
    std::string_view name = argv[i];
    if (name.starts_with("--")) name.remove_prefix(name.find('=') + 1);  // --option=FILE
    if (are_one_file(recording, name))
      throw InvalidArgument(fmt::format(
          "TENON_RECORD would write over {}, which this command names: unset it, or give another "
          "file", name));
  }
}

void set_reporting(const std::string& prefix, std::function<void()> before) {
  reporting() = {prefix, std::move(before)};
}

void prepare_process() {
  fill_closed_descriptors();
  keep_reserves();
  // A limit on file sizes is met like a full disk: by an error, and the earlier file stays.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGBUS, on_bus_error);
}

int run_guarded(const std::function<int()>& run) {
  if (recording_of_environment_is_lost()) return kFailure;
  const int status = run_catching(run);
  const bool failed_before = std::ferror(stdout) != 0;
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && !failed_before)
    return status == kSuccess && !keep_recording_of_environment() ? kFailure : status;
  // The command's own failure was reported and says more.
  return status != kSuccess ? status : output_failed(errno);
}

}  // namespace tenon::command
