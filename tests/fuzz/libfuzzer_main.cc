// libFuzzer's entry: TENON_FUZZ_TARGET names the target. An input may take as much of the heap as
// reading a file may: 16 times its size and 256 MiB. AddressSanitizer counts each malloc; without
// it (preset fuzz-fast) `new` and `delete` count.
#include <malloc.h>
#include <sanitizer/allocator_interface.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "target.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TENON_FUZZ_ASAN 1
#endif
#endif

namespace {

std::atomic<std::int64_t> live_bytes{0};
std::atomic<std::int64_t> most_live_bytes{0};

void count_taken(std::size_t size) {
  const std::int64_t now =
      live_bytes.fetch_add(static_cast<std::int64_t>(size), std::memory_order_relaxed) +
      static_cast<std::int64_t>(size);
  if (now > most_live_bytes.load(std::memory_order_relaxed))
    most_live_bytes.store(now, std::memory_order_relaxed);
}

void count_given_back(std::size_t size) {
  live_bytes.fetch_sub(static_cast<std::int64_t>(size), std::memory_order_relaxed);
}

}  // namespace

#ifdef TENON_FUZZ_ASAN

// What is freed is kept long enough to meet a use after it; more slows small inputs down.
extern "C" const char* __asan_default_options() {
  return "quarantine_size_mb=16:malloc_context_size=6";
}

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  tenon::fuzz::require(
      __sanitizer_install_malloc_and_free_hooks(
          [](const volatile void*, std::size_t size) { count_taken(size); },
          [](const volatile void* block) {
            count_given_back(__sanitizer_get_allocated_size(block));
          }) != 0,
      "the heap is counted");
  return 0;
}

#else

void* operator new(std::size_t size) {
  void* block = std::malloc(size);
  if (block == nullptr) throw std::bad_alloc();
  count_taken(::malloc_usable_size(block));
  return block;
}
void operator delete(void* block) noexcept {
  count_given_back(::malloc_usable_size(block));
  std::free(block);
}
void operator delete(void* block, std::size_t) noexcept { ::operator delete(block); }

#endif

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const tenon::fuzz::Target& target = [] {
    const char* name = std::getenv("TENON_FUZZ_TARGET");
    return tenon::fuzz::find_target(name == nullptr ? "" : name);
  }();
  const std::int64_t before = live_bytes.load();
  most_live_bytes = before;
  target.run({reinterpret_cast<const char*>(data), size});
  const std::int64_t taken = most_live_bytes.load() - before;
  if (taken > static_cast<std::int64_t>(16 * size + (256u << 20))) {
    std::fprintf(stderr, "broken promise: %lld bytes of heap for an input of %zu\n",
                 static_cast<long long>(taken), size);
    std::abort();
  }
  return 0;
}
