// Where Tenon's own records come from: the allocator below, whatever their size. The linker puts
// these in the place of the functions that they are named after (--wrap), in all that went into this
// library; the program's calls go to malloc.cc and operator_new.cc.
#include <cstddef>
#include <new>

#include "below.h"
#include "large_blocks.h"

namespace {

namespace below = tenon::preload::below;

void* allocate(std::size_t size) {
  void* const data = below::malloc(size == 0 ? 1 : size);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

void* allocate(std::size_t size, std::align_val_t alignment) {
  void* const data = below::aligned(static_cast<std::size_t>(alignment), size == 0 ? 1 : size);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

// The C library may have made it, by the program's malloc.
void release(void* data) {
  if (data != nullptr && !tenon::preload::LargeBlocks::free(data)) below::free(data);
}

}  // namespace

extern "C" {

void* __wrap_malloc(std::size_t size) { return below::malloc(size); }
void* __wrap_calloc(std::size_t count, std::size_t size) { return below::calloc(count, size); }
void* __wrap_realloc(void* data, std::size_t size) { return below::realloc(data, size); }
void __wrap_free(void* data) { release(data); }
void* __wrap_aligned_alloc(std::size_t alignment, std::size_t size) {
  return below::aligned(alignment, size);
}
int __wrap_posix_memalign(void** data, std::size_t alignment, std::size_t size) {
  void* const made = below::aligned(alignment, size);
  if (made == nullptr) return 12;  // ENOMEM
  *data = made;
  return 0;
}

void* __wrap__Znwm(std::size_t size) { return allocate(size); }
void* __wrap__Znam(std::size_t size) { return allocate(size); }
void* __wrap__ZnwmSt11align_val_t(std::size_t size, std::align_val_t alignment) {
  return allocate(size, alignment);
}
void* __wrap__ZnamSt11align_val_t(std::size_t size, std::align_val_t alignment) {
  return allocate(size, alignment);
}
void* __wrap__ZnwmRKSt9nothrow_t(std::size_t size, const std::nothrow_t&) {
  return below::malloc(size == 0 ? 1 : size);
}
void* __wrap__ZnamRKSt9nothrow_t(std::size_t size, const std::nothrow_t&) {
  return below::malloc(size == 0 ? 1 : size);
}
void __wrap__ZdlPv(void* data) { release(data); }
void __wrap__ZdaPv(void* data) { release(data); }
void __wrap__ZdlPvm(void* data, std::size_t) { release(data); }
void __wrap__ZdaPvm(void* data, std::size_t) { release(data); }
void __wrap__ZdlPvSt11align_val_t(void* data, std::align_val_t) { release(data); }
void __wrap__ZdaPvSt11align_val_t(void* data, std::align_val_t) { release(data); }
void __wrap__ZdlPvmSt11align_val_t(void* data, std::size_t, std::align_val_t) { release(data); }
void __wrap__ZdaPvmSt11align_val_t(void* data, std::size_t, std::align_val_t) { release(data); }
void __wrap__ZdlPvRKSt9nothrow_t(void* data, const std::nothrow_t&) { release(data); }
void __wrap__ZdaPvRKSt9nothrow_t(void* data, const std::nothrow_t&) { release(data); }

}  // extern "C"
