// A library to preload: one call of the system fails, once. TENON_FAIL_CALL=write:3:28 makes the
// third write() of the process fail with errno 28; with 0 the process is killed there instead.
// TENON_FAIL_MARK names a file that is made then.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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
        std::sscanf(text, "%15[a-z0-9]:%d:%d", read.call, &read.nth, &read.error) != 3)
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

ssize_t write(int file, const void* bytes, size_t size) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
  return fails("write") ? -1 : real(file, bytes, size);
}

ssize_t read(int file, void* bytes, size_t size) {
  static const auto real = next<ssize_t (*)(int, void*, size_t)>("read");
  return fails("read") ? -1 : real(file, bytes, size);
}

int fstat(int file, struct stat* info) noexcept {
  static const auto real = next<int (*)(int, struct stat*)>("fstat");
  return fails("fstat") ? -1 : real(file, info);
}

int pipe2(int ends[2], int flags) noexcept {
  static const auto real = next<int (*)(int[2], int)>("pipe2");
  return fails("pipe2") ? -1 : real(ends, flags);
}

int socket(int domain, int type, int protocol) noexcept {
  static const auto real = next<int (*)(int, int, int)>("socket");
  return fails("socket") ? -1 : real(domain, type, protocol);
}

int listen(int socket, int most) noexcept {
  static const auto real = next<int (*)(int, int)>("listen");
  return fails("listen") ? -1 : real(socket, most);
}

int poll(pollfd* files, nfds_t count, int timeout_ms) {
  static const auto real = next<int (*)(pollfd*, nfds_t, int)>("poll");
  return fails("poll") ? -1 : real(files, count, timeout_ms);
}

int fsync(int file) {
  static const auto real = next<int (*)(int)>("fsync");
  return fails("fsync") ? -1 : real(file);
}

int rename(const char* from, const char* to) noexcept {
  static const auto real = next<int (*)(const char*, const char*)>("rename");
  return fails("rename") ? -1 : real(from, to);
}

int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  static const auto real = next<int (*)(int, const char*, int, const char*, int)>("linkat");
  return fails("linkat") ? -1 : real(from_folder, from, to_folder, to, flags);
}

void* mmap(void* address, size_t size, int protection, int flags, int file,
           off_t offset) noexcept {
  static const auto real = next<void* (*)(void*, size_t, int, int, int, off_t)>("mmap");
  return fails("mmap") ? MAP_FAILED : real(address, size, protection, flags, file, offset);
}

int madvise(void* address, size_t size, int advice) noexcept {
  static const auto real = next<int (*)(void*, size_t, int)>("madvise");
  return fails("madvise") ? -1 : real(address, size, advice);
}

void* mremap(void* address, size_t size, size_t new_size, int flags, ...) noexcept {
  va_list more;
  va_start(more, flags);
  void* const place = va_arg(more, void*);
  va_end(more);
  static const auto real = next<void* (*)(void*, size_t, size_t, int, ...)>("mremap");
  return fails("mremap") ? MAP_FAILED : real(address, size, new_size, flags, place);
}

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
