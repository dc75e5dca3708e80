// The C library's functions, as the program calls them.
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "below.h"
#include "large_blocks.h"
#include "tenon/base/version.h"

#define TENON_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using tenon::preload::kLeastBytes;
using tenon::preload::LargeBlocks;
namespace below = tenon::preload::below;

bool is_power_of_two(std::size_t number) { return number != 0 && (number & (number - 1)) == 0; }

// What the allocator below gives; where it has nothing, with the memory that Tenon kept idle.
template <typename Ask>
void* from_below(Ask&& ask) {
  void* data = ask();
  if (data == nullptr && LargeBlocks::give_back()) data = ask();
  return data;
}

// Null and errno when there is no memory.
void* allocate_aligned(std::size_t alignment, std::size_t size) {
  if (size >= kLeastBytes)
    if (void* data = LargeBlocks::allocate(size, alignment)) return data;
  return from_below([&] {
    return below::aligned(alignment < sizeof(void*) ? sizeof(void*) : alignment, size);
  });
}

// One of the two sizes is large, or the block is ours: it may have to cross the border.
void* move(void* data, std::size_t old_size, std::size_t size) {
  void* moved = size >= kLeastBytes ? LargeBlocks::allocate(size, 1) : nullptr;
  if (moved == nullptr) moved = from_below([&] { return below::malloc(size); });
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, data, old_size < size ? old_size : size);
  return moved;
}

std::size_t page_bytes() { return 4096; }

}  // namespace

TENON_EXPORT const char* tenon_preload_version() { return TENON_VERSION; }

// Whether a block is Tenon's: for tests and for the curious, by dlsym.
TENON_EXPORT int tenon_preload_serves(const void* data) {
  return data != nullptr && LargeBlocks::size_of(data) != 0 ? 1 : 0;
}

TENON_EXPORT void* malloc(std::size_t size) {
  if (size >= kLeastBytes)
    if (void* data = LargeBlocks::allocate(size, 1)) return data;
  return from_below([&] { return below::malloc(size); });
}

TENON_EXPORT void free(void* data) {
  if (data == nullptr || LargeBlocks::free(data)) return;
  below::free(data);
}
TENON_EXPORT void cfree(void* data) { free(data); }

TENON_EXPORT void* calloc(std::size_t count, std::size_t size) {
  std::size_t bytes = 0;
  if (!__builtin_mul_overflow(count, size, &bytes) && bytes >= kLeastBytes)
    if (void* data = LargeBlocks::allocate_zeroed(bytes)) return data;
  // Also says what is wrong with a product that overflows.
  return from_below([&] { return below::calloc(count, size); });
}

TENON_EXPORT void* realloc(void* data, std::size_t size) {
  if (data == nullptr) return malloc(size);
  const std::size_t ours = LargeBlocks::size_of(data);
  if (ours == 0) {
    if (size == 0) return below::realloc(data, size);  // which frees it
    if (size < kLeastBytes) return from_below([&] { return below::realloc(data, size); });
    const std::size_t old_size = below::usable_size(data);
    if (old_size == 0) return below::realloc(data, size);  // it does not say
    void* const moved = LargeBlocks::allocate(size, 1);
    if (moved == nullptr) return below::realloc(data, size);
    std::memcpy(moved, data, old_size < size ? old_size : size);
    below::free(data);
    return moved;
  }
  if (size == 0) {  // as glibc has it
    LargeBlocks::free(data);
    return nullptr;
  }
  if (size >= kLeastBytes && LargeBlocks::resize(data, size)) return data;
  if (size > ours)
    if (void* const moved = LargeBlocks::grow(data, size)) return moved;
  void* const moved = move(data, ours, size);
  if (moved != nullptr) LargeBlocks::free(data);
  return moved;
}

TENON_EXPORT void* reallocarray(void* data, std::size_t count, std::size_t size) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    errno = ENOMEM;
    return nullptr;
  }
  return realloc(data, bytes);
}

TENON_EXPORT int posix_memalign(void** data, std::size_t alignment, std::size_t size) {
  if (!is_power_of_two(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  const int saved_errno = errno;
  void* const made = allocate_aligned(alignment, size);
  errno = saved_errno;
  if (made == nullptr) return ENOMEM;
  *data = made;
  return 0;
}

// As in glibc, an alignment that is no power of two is rounded up to one.
TENON_EXPORT void* aligned_alloc(std::size_t alignment, std::size_t size) {
  if (alignment > SIZE_MAX / 2 + 1) {
    errno = EINVAL;
    return nullptr;
  }
  return allocate_aligned(std::bit_ceil(alignment), size);
}
TENON_EXPORT void* memalign(std::size_t alignment, std::size_t size) {
  return aligned_alloc(alignment, size);
}
TENON_EXPORT void* valloc(std::size_t size) { return aligned_alloc(page_bytes(), size); }
TENON_EXPORT void* pvalloc(std::size_t size) {
  const std::size_t whole = (size + page_bytes() - 1) / page_bytes() * page_bytes();
  if (whole < size) {
    errno = ENOMEM;
    return nullptr;
  }
  return aligned_alloc(page_bytes(), whole);
}

TENON_EXPORT std::size_t malloc_usable_size(void* data) {
  if (data == nullptr) return 0;
  const std::size_t ours = LargeBlocks::size_of(data);
  return ours != 0 ? ours : below::usable_size(data);
}
