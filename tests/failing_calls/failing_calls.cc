// A library to preload: one call of the system fails, once. TENON_FAIL_CALL=write:3:28 makes the
// third write() of the process fail with errno 28; with 0 the process is killed there instead.
// TENON_FAIL_MARK names a file that is made then.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Plan {
  char call[16] = "";
  int nth = 0;
  int error = 0;
};

const Plan& plan() {
  static const Plan plan = [] {
    Plan read;
    const char* text = std::getenv("TENON_FAIL_CALL");
    if (text == nullptr ||
        std::sscanf(text, "%15[a-z0-9_]:%d:%d", read.call, &read.nth, &read.error) != 3)
      return Plan{};
    return read;
  }();
  return plan;
}

int (*g_main)(int, char**, char**) = nullptr;
std::atomic<bool> g_counts{false};
int counted_main(int count, char** arguments, char** environment) {
  plan();
  g_counts = true;
  return g_main(count, arguments, environment);
}

// Whether this call is the one; then errno is set.
bool fails(const char* call) {
  static std::atomic<int> count{0};
  if (!g_counts || std::strcmp(call, plan().call) != 0 || ++count != plan().nth) return false;
  if (const char* mark = std::getenv("TENON_FAIL_MARK"))
    ::syscall(SYS_close, ::syscall(SYS_openat, AT_FDCWD, mark, O_CREAT | O_WRONLY, 0600));
  if (plan().error == 0) ::kill(::getpid(), SIGKILL);
  errno = plan().error;
  return true;
}

template <typename F>
F next(const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
  }
  static const auto real = next<int (*)(const char*, int, ...)>("open");
  return fails("open") ? -1 : real(path, flags, mode);
}

// A function that may fail with -1 and errno, and one that returns something else then.
#define TENON_FAILING_AS(failure, type, name, parameters, arguments, ...) \
  type name parameters __VA_ARGS__ {                                      \
    static const auto real = next<type(*) parameters>(#name);             \
    return fails(#name) ? failure : real arguments;                       \
  }
#define TENON_FAILING(...) TENON_FAILING_AS(-1, __VA_ARGS__)

TENON_FAILING(ssize_t, write, (int file, const void* bytes, size_t size), (file, bytes, size))
TENON_FAILING(ssize_t, read, (int file, void* bytes, size_t size), (file, bytes, size))
TENON_FAILING(int, fstat, (int file, struct stat* info), (file, info), noexcept)
TENON_FAILING(int, fsync, (int file), (file))
TENON_FAILING(int, rename, (const char* from, const char* to), (from, to), noexcept)
TENON_FAILING(int, linkat, (int from_folder, const char* from, int to_folder, const char* to,
                            int flags), (from_folder, from, to_folder, to, flags), noexcept)
TENON_FAILING_AS(nullptr, DIR*, opendir, (const char* name), (name))
TENON_FAILING_AS(nullptr, dirent*, readdir, (DIR* folder), (folder))
TENON_FAILING_AS(nullptr, char*, realpath, (const char* name, char* to), (name, to), noexcept)
TENON_FAILING(int, mkdir, (const char* name, mode_t mode), (name, mode), noexcept)
TENON_FAILING(int, flock, (int file, int how), (file, how), noexcept)
TENON_FAILING(int, fchmod, (int file, mode_t mode), (file, mode), noexcept)
TENON_FAILING_AS(MAP_FAILED, void*, mmap,
                 (void* address, size_t size, int protection, int flags, int file, off_t offset),
                 (address, size, protection, flags, file, offset), noexcept)
TENON_FAILING(int, munmap, (void* address, size_t size), (address, size), noexcept)
TENON_FAILING(int, mprotect, (void* address, size_t size, int rights), (address, size, rights),
              noexcept)
TENON_FAILING(int, madvise, (void* address, size_t size, int advice), (address, size, advice),
              noexcept)
TENON_FAILING(int, memfd_create, (const char* name, unsigned flags), (name, flags), noexcept)
TENON_FAILING(int, pipe2, (int ends[2], int flags), (ends, flags), noexcept)
TENON_FAILING(pid_t, fork, (), (), noexcept)
TENON_FAILING(pid_t, waitpid, (pid_t process, int* status, int options),
              (process, status, options))
TENON_FAILING(int, signalfd, (int file, const sigset_t* signals, int flags),
              (file, signals, flags), noexcept)
TENON_FAILING(int, chdir, (const char* folder), (folder), noexcept)
TENON_FAILING(int, execv, (const char* program, char* const* arguments), (program, arguments),
              noexcept)
TENON_FAILING(int, socket, (int domain, int type, int protocol), (domain, type, protocol), noexcept)
TENON_FAILING(int, listen, (int socket, int most), (socket, most), noexcept)
TENON_FAILING(int, poll, (pollfd* files, nfds_t count, int timeout_ms), (files, count, timeout_ms))

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) noexcept {
  static const auto real = next<int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*),
                                        void*)>("pthread_create");
  return fails("thread") ? EAGAIN : real(thread, attributes, run, argument);
}

void* __libc_malloc(size_t);
void* malloc(size_t size) { return fails("malloc") ? nullptr : __libc_malloc(size); }

// Calls are counted from main() on.
int __libc_start_main(int (*main)(int, char**, char**), int count, char** arguments,
                      void (*init)(), void (*fini)(), void (*rtld_fini)(), void* stack_end) {
  g_main = main;
  static const auto real =
      next<int (*)(int (*)(int, char**, char**), int, char**, void (*)(), void (*)(), void (*)(),
                   void*)>("__libc_start_main");
  return real(counted_main, count, arguments, init, fini, rtld_fini, stack_end);
}

}  // extern "C"
