// The allocator that the program would have without this library: the C library's, or one that is
// preloaded after it.
#pragma once

#include <cstddef>

namespace tenon::preload {

// Its functions, found by name at the first call. Thread-safe, from the first instruction on: what is
// asked for while they are looked up comes from a small buffer, and is never given back.
namespace below {

void* malloc(std::size_t size);
void* calloc(std::size_t count, std::size_t size);
void* realloc(void* data, std::size_t size);
void* aligned(std::size_t alignment, std::size_t size);  // null and errno when it fails
void free(void* data);
std::size_t usable_size(void* data);

// The operators new and delete of the allocator below, by their mangled name; null where the program
// has none.
void* find(const char* name);

}  // namespace below
}  // namespace tenon::preload
