#include "below.h"

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace tenon::preload::below {
namespace {

struct Functions {
  std::atomic<void* (*)(std::size_t)> malloc{nullptr};
  std::atomic<void* (*)(std::size_t, std::size_t)> calloc{nullptr};
  std::atomic<void* (*)(void*, std::size_t)> realloc{nullptr};
  std::atomic<void (*)(void*)> free{nullptr};
  std::atomic<int (*)(void**, std::size_t, std::size_t)> posix_memalign{nullptr};
  std::atomic<std::size_t (*)(void*)> malloc_usable_size{nullptr};
};
constinit Functions functions;
constinit thread_local bool looking = false;  // this thread is in dlsym

// What dlsym itself asks for. A few hundred bytes at most.
alignas(64) char first_bytes[16 << 10];
constinit std::atomic<std::size_t> first_used{0};

bool is_first(const void* data) {
  return data >= first_bytes && data < first_bytes + sizeof(first_bytes);
}

// Zeroed, as it is used once. The size stands before each piece, for realloc.
void* take_first(std::size_t size) {
  const std::size_t room = (size + 31) / 16 * 16;
  const std::size_t at = first_used.fetch_add(room, std::memory_order_relaxed);
  if (at + room > sizeof(first_bytes)) {
    errno = ENOMEM;
    return nullptr;
  }
  std::memcpy(first_bytes + at, &size, sizeof(size));
  return first_bytes + at + 16;
}

std::size_t first_size(const void* data) {
  std::size_t size = 0;
  std::memcpy(&size, static_cast<const char*>(data) - 16, sizeof(size));
  return size;
}

template <typename Function>
Function look_up(std::atomic<Function>& slot, const char* name) {
  if (Function known = slot.load(std::memory_order_relaxed)) [[likely]] return known;
  looking = true;
  const auto found = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
  looking = false;
  slot.store(found, std::memory_order_relaxed);
  return found;
}

}  // namespace

void* malloc(std::size_t size) {
  if (looking) [[unlikely]] return take_first(size);
  return look_up(functions.malloc, "malloc")(size);
}

void* calloc(std::size_t count, std::size_t size) {
  if (looking) [[unlikely]] return take_first(count * size);
  return look_up(functions.calloc, "calloc")(count, size);
}

void* realloc(void* data, std::size_t size) {
  if (looking || is_first(data)) [[unlikely]] {
    void* const moved = looking ? take_first(size) : malloc(size);
    if (moved == nullptr || data == nullptr) return moved;
    const std::size_t old = is_first(data) ? first_size(data) : size;
    std::memcpy(moved, data, old < size ? old : size);
    return moved;
  }
  return look_up(functions.realloc, "realloc")(data, size);
}

void* aligned(std::size_t alignment, std::size_t size) {
  if (looking) [[unlikely]] {  // not seen to happen: dlsym asks for no alignment
    errno = ENOMEM;
    return nullptr;
  }
  void* data = nullptr;
  const int status =
      look_up(functions.posix_memalign, "posix_memalign")(&data, alignment, size);
  if (status == 0) return data;
  errno = status;
  return nullptr;
}

void free(void* data) {
  if (is_first(data)) [[unlikely]] return;
  look_up(functions.free, "free")(data);
}

std::size_t usable_size(void* data) {
  if (is_first(data)) [[unlikely]] return first_size(data);
  const auto function = look_up(functions.malloc_usable_size, "malloc_usable_size");
  return function == nullptr ? 0 : function(data);
}

void* find(const char* name) {
  looking = true;
  void* const found = ::dlsym(RTLD_NEXT, name);
  looking = false;
  return found;
}

}  // namespace tenon::preload::below
