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
  void* allocate(std::size_t alignment, std::size_t size) const {
    return size_first ? aligned(size, alignment) : aligned(alignment, size);
  }

  std::string name;
  AllocateFn aligned = nullptr;
  FreeFn free = nullptr;
  bool size_first = false;  // mimalloc's and oneTBB's functions take the size first
};

inline HostAllocator& host = *new HostAllocator(host_backend());
inline void* host_allocate(std::size_t, std::size_t size) { return host.raw_allocate(size); }
inline void host_free(void* data) { host.raw_deallocate(data); }

// The functions that allocators export, those of their own first.
struct PeerSymbols {
  const char* allocate;
  const char* free;
  bool size_first;
};
inline constexpr PeerSymbols kPeerSymbols[] = {
    {"mi_malloc_aligned", "mi_free", true},
    {"scalable_aligned_malloc", "scalable_aligned_free", true},
    {"tc_memalign", "tc_free", false},
    {"aligned_alloc", "free", false},
};

// The allocator in a library, which replaces no malloc. One that is not there, or exports no
// functions that are known, is left out with a line that says so.
inline void add_peer(std::vector<Peer>& all, const std::string& name, const std::string& file) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const std::string reason = dlerror();
    fmt::print("{} is left out: {}{}\n", name, reason,
               reason.find("static TLS") == std::string::npos
                   ? ""
                   : ": set GLIBC_TUNABLES=glibc.rtld.optional_static_tls=16384");
    return;
  }
  for (const PeerSymbols& names : kPeerSymbols) {
    const auto allocate = reinterpret_cast<AllocateFn>(dlsym(library, names.allocate));
    const auto free = reinterpret_cast<FreeFn>(dlsym(library, names.free));
    if (allocate == nullptr || free == nullptr) continue;
    all.push_back({name, allocate, free, names.size_first});
    return;
  }
  fmt::print("{} is left out: {} exports no aligned allocation that is known\n", name, file);
}

struct PeerOptions {
  int passes = 15;
  std::vector<Peer> peers;  // the first is ours, the second the C library
};

// Of [PASSES] [--peer NAME=LIBRARY]...: Debian's packages, and the libraries that are named.
// Exits with 2 for anything else.
inline PeerOptions peer_options(int argc, char** argv) {
  PeerOptions options;
  std::vector<Peer>& all = options.peers;
  all = {{"host", &host_allocate, &host_free}, {"glibc", &std::aligned_alloc, &std::free}};
  add_peer(all, "mimalloc", "libmimalloc.so.2");
  add_peer(all, "jemalloc", "libjemalloc.so.2");
  add_peer(all, "tcmalloc", "libtcmalloc_minimal.so.4");
  add_peer(all, "tbb", "libtbbmalloc.so.2");
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::string named = i + 1 < argc ? argv[i + 1] : "";
    const std::size_t equals = named.find('=');
    if (argument == "--peer" && equals != std::string::npos && equals > 0) {
      add_peer(all, named.substr(0, equals), named.substr(equals + 1));
      ++i;
    } else if (const int passes = std::atoi(argv[i]); passes > 0) {
      options.passes = passes;
    } else {
      fmt::print(stderr, "{}: '{}' is not understood: [PASSES] [--peer NAME=LIBRARY]...\n", argv[0],
                 argument);
      std::exit(2);
    }
  }
  return options;
}

// "same: 9.7 ns; wanted: at most 4 ns: NOT", at the end of a program's output.
inline void print_verdict(const std::string& what, double worst, double wanted,
                          const std::string& unit) {
  fmt::print("{}: {:.2f}{}; wanted: at most {}{}: {}\n", what, worst, unit, wanted, unit,
             worst <= wanted ? "kept" : "NOT");
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
