// What a forked child does with its parent's allocator.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tenon/memory/device_allocator.h"

namespace tenon {

// ThreadSanitizer does not follow a fork among threads, and AddressSanitizer's own operator new
// does not survive one.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kCanFork = false;
#else
inline constexpr bool kCanFork = true;
#endif

// Forks, calls `work` in the child and waits for its end. Returns what is wrong: what `work` wrote,
// or how else the child ended. A child that takes longer is ended by SIGALRM.
std::string run_in_forked_child(unsigned seconds, const std::function<std::string()>& work);

// Allocates on this thread and on another, frees across, asks for statistics, empties the cache and
// checks the allocator. Returns what is wrong. Memory may be short.
std::string use_allocator_in_child(DeviceAllocator& allocator, std::uint64_t seed);

}  // namespace tenon
