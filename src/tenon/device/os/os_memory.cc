#include "tenon/device/os/os_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tenon/base/align.h"

namespace tenon::os {
namespace {

// mmap gives page alignment only; for more, map too much and give the ends back.
void* map_aligned(std::uint64_t size_bytes, std::uint64_t alignment, int protection, int flags) {
  const std::uint64_t slack = alignment > page_size() ? alignment : 0;
  void* raw = ::mmap(nullptr, size_bytes + slack, protection, flags, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  if (slack == 0) return raw;
  const auto start = reinterpret_cast<std::uintptr_t>(raw);
  const std::uintptr_t base = align_up(start, alignment);
  const std::uintptr_t end = align_up(base + size_bytes, page_size());
  if (base > start) ::munmap(raw, base - start);
  const std::uintptr_t raw_end = align_up(start + size_bytes + slack, page_size());
  if (raw_end > end) ::munmap(reinterpret_cast<void*>(end), raw_end - end);
  return reinterpret_cast<void*>(base);
}

}  // namespace

std::uint64_t address_limit_bytes() {
  rlimit limit = {};
  const bool limited = ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return limited ? limit.rlim_cur : 0;
}

std::uint64_t page_size() {
  static const auto size = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

void* reserve(std::uint64_t size_bytes, std::uint64_t alignment) {
  return map_aligned(size_bytes, alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
}

void* allocate(std::uint64_t size_bytes, std::uint64_t alignment) {
  return map_aligned(size_bytes, alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
}

void ask_for_huge_pages(void* base, std::uint64_t size_bytes) {
  ::madvise(base, size_bytes, MADV_HUGEPAGE);
}

void release(void* base, std::uint64_t size_bytes) { ::munmap(base, size_bytes); }

void forget(void* base, std::uint64_t size_bytes) { ::madvise(base, size_bytes, MADV_DONTNEED); }

int create_file(const char* name, std::uint64_t size_bytes) {
  const int file = ::memfd_create(name, MFD_CLOEXEC);
  if (file < 0) return -1;
  if (::ftruncate(file, static_cast<off_t>(size_bytes)) != 0) {
    ::close(file);
    return -1;
  }
  return file;
}

void discard(int file, std::uint64_t offset, std::uint64_t size_bytes) {
  ::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(size_bytes));
}

bool map_file(void* address, std::uint64_t size_bytes, int file, std::uint64_t offset) {
  return ::mmap(address, size_bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, file,
                static_cast<off_t>(offset)) != MAP_FAILED;
}

bool make_accessible(void* address, std::uint64_t size_bytes) {
  return ::mprotect(address, size_bytes, PROT_READ | PROT_WRITE) == 0;
}

bool unmap_file(void* address, std::uint64_t size_bytes) {
  return ::mmap(address, size_bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

}  // namespace tenon::os
