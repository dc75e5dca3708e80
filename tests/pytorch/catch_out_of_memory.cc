// Catches what our malloc throws as PyTorch does, with PyTorch's own header.
#include <c10/util/Exception.h>
#include <sys/types.h>

#include <cstring>

// 1: it is c10::OutOfMemoryError and says `words`; 2: it does not say them; 3: another exception.
extern "C" int catch_out_of_memory(void* malloc_function, ssize_t size, const char* words) {
  using Malloc = void* (*)(ssize_t, int, void*);
  try {
    reinterpret_cast<Malloc>(malloc_function)(size, 0, nullptr);
  } catch (const c10::OutOfMemoryError& error) {
    return std::strstr(error.what_without_backtrace(), words) != nullptr ? 1 : 2;
  } catch (...) {
    return 3;
  }
  return 0;
}
