// The operators new and delete as the program calls them. Large requests are Tenon's; others, and
// failures with their handlers and exceptions, are the operators' of the library below.
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>

#include "below.h"
#include "large_blocks.h"

#define TENON_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using tenon::preload::kLeastBytes;
using tenon::preload::LargeBlocks;
namespace below = tenon::preload::below;

// The operator of that name in the library below. There is none where the C++ library is not among
// the program's own libraries but came with a plugin (Python's modules): the C++ library's operators
// are malloc and free then.
template <typename Function>
class Below {
 public:
  constexpr explicit Below(const char* name) : name_(name) {}
  // Null: there is none.
  Function* get() {
    if (!looked_.load(std::memory_order_acquire)) [[unlikely]] {
      found_.store(reinterpret_cast<Function*>(below::find(name_)), std::memory_order_relaxed);
      looked_.store(true, std::memory_order_release);
    }
    return found_.load(std::memory_order_relaxed);
  }
  // The plugin's C++ library's own: it calls the new handler and throws. Null: it is not loaded.
  Function* of_plugin() const {
    for (const char* library : {"libstdc++.so.6", "libc++.so.1", "libc++abi.so.1"})
      if (void* const loaded = ::dlopen(library, RTLD_NOLOAD | RTLD_LAZY))
        if (void* const found = ::dlsym(loaded, name_)) return reinterpret_cast<Function*>(found);
    return nullptr;
  }

 private:
  const char* const name_;
  std::atomic<bool> looked_{false};
  std::atomic<Function*> found_{nullptr};
};

// A request of the program's that Tenon does not serve.
template <typename Function, typename... Arguments>
void* make_below(Below<Function>& next, std::size_t size, std::size_t alignment,
                 Arguments... arguments) {
  if (Function* const function = next.get()) [[likely]] return function(size, arguments...);
  const std::size_t least = size == 0 ? 1 : size;
  void* const data = alignment > alignof(std::max_align_t) ? below::aligned(alignment, least)
                                                           : below::malloc(least);
  if (data != nullptr) return data;
  if (Function* const function = next.of_plugin()) return function(size, arguments...);
  std::abort();  // an operator new that no C++ library has, and no memory
}

template <typename Function, typename... Arguments>
void end_below(Below<Function>& next, void* data, Arguments... arguments) {
  if (data == nullptr || LargeBlocks::free(data)) return;
  if (Function* const function = next.get()) [[likely]] return function(data, arguments...);
  below::free(data);
}

}  // namespace

// Mangled names, since the types of std would have to be another library's: an alignment is a size,
// std::nothrow a pointer.
#define TENON_NEW(name)                                             \
  TENON_EXPORT void* name(std::size_t size) {                       \
    static constinit Below<void*(std::size_t)> next(#name);         \
    if (size >= kLeastBytes)                                        \
      if (void* data = LargeBlocks::allocate(size, 1)) return data; \
    return make_below(next, size, 1);                               \
  }
#define TENON_NEW_NOTHROW(name)                                          \
  TENON_EXPORT void* name(std::size_t size, const void* nothrow) {       \
    static constinit Below<void*(std::size_t, const void*)> next(#name); \
    if (size >= kLeastBytes)                                             \
      if (void* data = LargeBlocks::allocate(size, 1)) return data;      \
    return make_below(next, size, 1, nothrow);                           \
  }
#define TENON_NEW_ALIGNED(name)                                             \
  TENON_EXPORT void* name(std::size_t size, std::size_t alignment) {        \
    static constinit Below<void*(std::size_t, std::size_t)> next(#name);    \
    if (size >= kLeastBytes)                                                \
      if (void* data = LargeBlocks::allocate(size, alignment)) return data; \
    return make_below(next, size, alignment, alignment);                    \
  }
#define TENON_NEW_ALIGNED_NOTHROW(name)                                                   \
  TENON_EXPORT void* name(std::size_t size, std::size_t alignment, const void* nothrow) { \
    static constinit Below<void*(std::size_t, std::size_t, const void*)> next(#name);     \
    if (size >= kLeastBytes)                                                              \
      if (void* data = LargeBlocks::allocate(size, alignment)) return data;               \
    return make_below(next, size, alignment, alignment, nothrow);                         \
  }
#define TENON_DELETE(name)                           \
  TENON_EXPORT void name(void* data) {               \
    static constinit Below<void(void*)> next(#name); \
    end_below(next, data);                           \
  }
#define TENON_DELETE_MORE(name)                                   \
  TENON_EXPORT void name(void* data, std::size_t more) {          \
    static constinit Below<void(void*, std::size_t)> next(#name); \
    end_below(next, data, more);                                  \
  }
#define TENON_DELETE_MOST(name)                                                \
  TENON_EXPORT void name(void* data, std::size_t more, std::size_t most) {     \
    static constinit Below<void(void*, std::size_t, std::size_t)> next(#name); \
    end_below(next, data, more, most);                                         \
  }

TENON_NEW(_Znwm)
TENON_NEW(_Znam)
TENON_NEW_NOTHROW(_ZnwmRKSt9nothrow_t)
TENON_NEW_NOTHROW(_ZnamRKSt9nothrow_t)
TENON_NEW_ALIGNED(_ZnwmSt11align_val_t)
TENON_NEW_ALIGNED(_ZnamSt11align_val_t)
TENON_NEW_ALIGNED_NOTHROW(_ZnwmSt11align_val_tRKSt9nothrow_t)
TENON_NEW_ALIGNED_NOTHROW(_ZnamSt11align_val_tRKSt9nothrow_t)
TENON_DELETE(_ZdlPv)
TENON_DELETE(_ZdaPv)
TENON_DELETE_MORE(_ZdlPvm)
TENON_DELETE_MORE(_ZdaPvm)
TENON_DELETE_MORE(_ZdlPvRKSt9nothrow_t)
TENON_DELETE_MORE(_ZdaPvRKSt9nothrow_t)
TENON_DELETE_MORE(_ZdlPvSt11align_val_t)
TENON_DELETE_MORE(_ZdaPvSt11align_val_t)
TENON_DELETE_MOST(_ZdlPvmSt11align_val_t)
TENON_DELETE_MOST(_ZdaPvmSt11align_val_t)
TENON_DELETE_MOST(_ZdlPvSt11align_val_tRKSt9nothrow_t)
TENON_DELETE_MOST(_ZdaPvSt11align_val_tRKSt9nothrow_t)
