// The host allocator beside the C library's and those that people load instead of it: how they are
// called and timed, in one process.
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "tenon/device/host/host_backend.h"
#include "tenon/memory/host/host_allocator.h"

namespace tenon::bench {

using Clock = std::chrono::steady_clock;
using AllocateFn = void* (*)(std::size_t alignment, std::size_t size);
using FreeFn = void (*)(void*);

struct Peer {
  std::string name;
  AllocateFn allocate = nullptr;
  FreeFn free = nullptr;
};

inline HostAllocator& host = *new HostAllocator(host_backend());
inline void* host_allocate(std::size_t, std::size_t size) { return host.raw_allocate(size); }
inline void host_free(void* data) { host.raw_deallocate(data); }

// mimalloc and oneTBB take the size first.
inline void* (*mi_aligned)(std::size_t, std::size_t) = nullptr;
inline void* mi_allocate(std::size_t alignment, std::size_t size) {
  return mi_aligned(size, alignment);
}
inline void* (*tbb_aligned)(std::size_t, std::size_t) = nullptr;
inline void* tbb_allocate(std::size_t alignment, std::size_t size) {
  return tbb_aligned(size, alignment);
}

template <typename Fn>
Fn symbol(void* library, const char* name) {
  return library == nullptr ? nullptr : reinterpret_cast<Fn>(dlsym(library, name));
}

// Loaded beside each other: none replaces malloc. Those that are not installed are left out.
inline std::vector<Peer> peers() {
  std::vector<Peer> all = {{"host", &host_allocate, &host_free},
                           {"glibc", &std::aligned_alloc, &std::free}};
  const auto add = [&](const char* name, const char* file, const char* allocate, const char* free,
                       void* (**size_first)(std::size_t, std::size_t), AllocateFn wrapper) {
    void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    auto found = symbol<AllocateFn>(library, allocate);
    const auto release = symbol<FreeFn>(library, free);
    if (found == nullptr || release == nullptr) {
      fmt::print("{} is not here ({})\n", name, library == nullptr ? dlerror() : "no such symbols");
      return;
    }
    if (size_first != nullptr) *size_first = found;
    all.push_back({name, size_first != nullptr ? wrapper : found, release});
  };
  add("mimalloc", "libmimalloc.so.2", "mi_malloc_aligned", "mi_free", &mi_aligned, &mi_allocate);
  add("jemalloc", "libjemalloc.so.2", "aligned_alloc", "free", nullptr, nullptr);
  add("tcmalloc", "libtcmalloc_minimal.so.4", "tc_memalign", "tc_free", nullptr, nullptr);
  add("tbb", "libtbbmalloc.so.2", "scalable_aligned_malloc", "scalable_aligned_free", &tbb_aligned,
      &tbb_allocate);
  return all;
}

inline double thread_ns() {
  timespec used = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return 1e9 * static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec);
}

// Processor time of this thread: what other programs take does not count.
template <typename Call>
double ns_per_call(int calls, Call&& call) {
  const double start = thread_ns();
  for (int i = 0; i < calls; ++i) call();
  return (thread_ns() - start) / calls;
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Every subject in turn, `passes` times, so that a noisy moment meets them all; the medians.
inline std::vector<double> medians(int passes,
                                   const std::vector<std::function<double()>>& subjects) {
  std::vector<std::vector<double>> all(subjects.size());
  for (int pass = 0; pass < passes; ++pass)
    for (std::size_t i = 0; i < subjects.size(); ++i) all[i].push_back(subjects[i]());
  std::vector<double> out;
  for (const auto& values : all) out.push_back(median(values));
  return out;
}

inline std::string readable(double ns) {
  if (ns >= 1e6) return fmt::format("{:.1f} ms", ns / 1e6);
  if (ns >= 1e4) return fmt::format("{:.1f} us", ns / 1e3);
  return fmt::format("{:.1f}", ns);
}

inline void print_head(const std::vector<Peer>& all, const char* first, int width = 10) {
  fmt::print("{:>{}}", first, width);
  for (const Peer& peer : all) fmt::print(" {:>10}", peer.name);
}

}  // namespace tenon::bench
