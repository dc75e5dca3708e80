#include "large_blocks.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "below.h"
#include "tenon/base/align.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/memory/host/host_allocator.h"

namespace tenon::preload {
namespace {

// HostAllocator's blocks begin at multiples of 64, those of whole 64 KiB at multiples of that.
constexpr std::size_t kBlockAlignment = 64;
constexpr std::size_t kWholeAlignment = 64 << 10;

// From here on calloc gives pages back rather than writing zeros: a program may never touch them.
constexpr std::size_t kHugePage = 2 << 20;
constexpr std::size_t kFreshBytes = 2 * kHugePage;

// The whole huge pages of a block of kFreshBytes and more.
struct HugePages {
  HugePages(void* data, std::size_t size)
      : begin(reinterpret_cast<char*>(align_up(reinterpret_cast<std::uintptr_t>(data), kHugePage))),
        size_bytes(static_cast<std::size_t>(static_cast<char*>(data) + size - begin) / kHugePage *
                   kHugePage) {}
  // Private pages that were given back read as zeros. False: they are locked, and nothing happened.
  bool give_back() const { return ::madvise(begin, size_bytes, MADV_DONTNEED) == 0; }

  char* const begin;
  const std::size_t size_bytes;
};

// Note [Growing blocks]. Up to the first huge page, then each huge page, then the rest.
void copy_and_give_back(char* to, char* from, std::size_t size) {
  for (std::size_t piece = 0; size > 0; to += piece, from += piece, size -= piece) {
    piece = kHugePage - reinterpret_cast<std::uintptr_t>(from) % kHugePage;
    if (piece > size) piece = size;
    std::memcpy(to, from, piece);
    if (piece == kHugePage) HugePages(from, piece).give_back();
  }
}

// Set while this thread is in Tenon: what the C library asks for there is not Tenon's to serve.
constinit thread_local bool inside = false;
class Inside {
 public:
  Inside() { inside = true; }
  ~Inside() { inside = false; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

constinit std::atomic<bool> started{false};
alignas(HostAllocator) char allocator_bytes[sizeof(HostAllocator)];

}  // namespace

constinit LargeBlocks::Table LargeBlocks::table_;
constinit std::atomic<HostAllocator*> LargeBlocks::allocator_{nullptr};

// One thread makes it; others, and what is asked for meanwhile, go below.
HostAllocator* LargeBlocks::start() {
  if (HostAllocator* ready = allocator()) return ready;
  if (inside || started.exchange(true)) return nullptr;
  const Inside here;
  // The allocator below prepares for fork(2) at its first request: before Tenon does, so that a
  // fork takes Tenon's locks first and gives them back last.
  below::free(below::malloc(1));
  try {
    auto* made = new (allocator_bytes) HostAllocator(host_backend());
    allocator_.store(made, std::memory_order_release);
    return made;
  } catch (...) {
    return nullptr;  // Tenon serves nothing then
  }
}

bool LargeBlocks::enter(void* start, void* base, std::size_t size, bool is_fresh) {
  Record* record = table_.map.get(start);
  if (record == nullptr) {
    record = new (std::nothrow) Record;
    if (record == nullptr) return false;
    try {
      table_.map.set(start, record);
    } catch (const std::bad_alloc&) {
      delete record;
      return false;
    }
  }
  record->base = base;
  record->size = size;
  record->has_grown = false;
  if (record->is_fresh) record->keeps_pages = !is_fresh;
  record->is_fresh = is_fresh;
  record->start.store(start, std::memory_order_relaxed);
  return true;
}

void* LargeBlocks::allocate(std::size_t size, std::size_t alignment, bool is_fresh) {
  if (inside || size > kMaxRequestBytes / 2 || alignment > kMaxRequestBytes / 4) return nullptr;
  HostAllocator* const allocator = start();
  if (allocator == nullptr) return nullptr;
  std::size_t room = size;
  if (alignment > kWholeAlignment)
    room = size + alignment;
  else if (alignment > kBlockAlignment)
    room = align_up(size, kWholeAlignment);
  const Inside here;
  const int saved_errno = errno;
  try {
    void* const base = allocator->raw_allocate(room);
    const auto start = align_up(reinterpret_cast<std::uintptr_t>(base),
                                alignment > kWholeAlignment ? alignment : std::size_t{1});
    if (!is_aligned(start, alignment)) {  // a segment of the system that begins oddly
      allocator->raw_deallocate(base);
    } else if (enter(reinterpret_cast<void*>(start), base, size, is_fresh)) {
      errno = saved_errno;
      return reinterpret_cast<void*>(start);
    } else {
      allocator->raw_deallocate(base);
    }
  } catch (const std::exception&) {
  }
  errno = saved_errno;
  return nullptr;
}

void* LargeBlocks::allocate_zeroed(std::size_t size) {
  const bool is_fresh = size >= kFreshBytes;
  void* const data = allocate(size, 1, is_fresh);
  if (data == nullptr) return nullptr;
  auto* begin = static_cast<char*>(data);
  auto* const end = begin + size;
  if (is_fresh) {
    const int saved_errno = errno;
    const HugePages pages(data, size);
    if (pages.give_back()) {
      std::memset(begin, 0, static_cast<std::size_t>(pages.begin - begin));
      begin = pages.begin + pages.size_bytes;
    }
    errno = saved_errno;
  }
  std::memset(begin, 0, static_cast<std::size_t>(end - begin));
  return data;
}

void LargeBlocks::release(Record& record) {
  const Inside here;
  const int saved_errno = errno;
  void* const base = record.base;
  if (record.is_fresh && !record.keeps_pages)
    HugePages(record.start.load(std::memory_order_relaxed), record.size).give_back();
  record.start.store(nullptr, std::memory_order_relaxed);
  try {
    allocator()->raw_deallocate(base);
  } catch (const std::exception&) {
    // The driver took nothing back; there is no caller to tell.
  }
  errno = saved_errno;
}

bool LargeBlocks::give_back() {
  HostAllocator* const ready = allocator();
  if (ready == nullptr || inside) return false;
  const Inside here;
  const int saved_errno = errno;
  try {
    ready->trim();
  } catch (const std::exception&) {
    // What went back is back.
  }
  errno = saved_errno;
  return true;
}

void* LargeBlocks::grow(void* data, std::size_t size) {
  if (size > kMaxRequestBytes / 2) return nullptr;
  Record& old = *find(data);
  void* const moved = allocate(old.has_grown ? size + size / 2 : size, 1);
  if (moved == nullptr) return nullptr;
  find(moved)->has_grown = true;
  const int saved_errno = errno;
  copy_and_give_back(static_cast<char*>(moved), static_cast<char*>(data), old.size);
  errno = saved_errno;
  release(old);
  return moved;
}

bool LargeBlocks::resize(void* data, std::size_t size) {
  const Record* const record = find(data);
  return record != nullptr && size <= record->size && size >= record->size / 2;
}

}  // namespace tenon::preload
