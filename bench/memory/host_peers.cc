// The host allocator beside the C library and the allocators that people load instead of it, in one
// process.
//   bench_host_peers [PASSES] [--peer NAME=LIBRARY]...
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "peers.h"
#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/random.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/memory/host/host_allocator.h"

namespace {

using namespace tenon::bench;

constexpr std::size_t kMiB = 1 << 20;

// One byte of each page, as a user would touch what it gets. Each page's byte is in another cache
// line: bytes that are 4 KiB apart share one set of the first cache and would measure that set.
void touch(void* data, std::size_t size_bytes) {
  volatile char* bytes = static_cast<volatile char*>(data);
  for (std::size_t page = 0; page * 4096 < size_bytes; ++page)
    bytes[std::min(page * 4096 + page % 64 * 64, size_bytes - 1)] = 1;
}

// The worst of ours over the best other. Before the calls that are timed comes one that is not:
// some allocators give idle memory back to the system, and the others' turns take seconds.
double touched_pairs(const std::vector<Peer>& all, int passes) {
  fmt::print("\nallocate, touch one byte a page, free; ns, medians of {} passes\n", passes);
  print_head(all, "size");
  fmt::print(" {:>12} {:>13}\n", "host / best", "glibc / host");
  double worst = 0;
  for (std::size_t size = 64; size <= 256 * kMiB; size *= 4) {
    std::vector<std::function<double()>> subjects;
    for (const Peer& peer : all)
      subjects.push_back([&peer, size] {
        const int calls = static_cast<int>(std::clamp<std::size_t>(64 * kMiB / size, 2, 100000));
        const auto pair = [&] {
          void* data = peer.allocate(64, size);
          touch(data, size);
          peer.free(data);
        };
        pair();
        return ns_per_call(calls, pair);
      });
    const std::vector<double> ns = medians(passes, subjects);
    fmt::print("{:>10}", tenon::format_byte_size(size));
    for (const double value : ns) fmt::print(" {:>10}", readable(value));
    const double best = *std::min_element(ns.begin() + 1, ns.end());
    fmt::print(" {:>12.2f} {:>12.1f}x\n", ns[0] / best, ns[1] / ns[0]);
    worst = std::max(worst, ns[0] / best);
  }
  return worst;
}

// What no pair can be below: two calls that do nothing.
[[gnu::noinline]] void* allocate_nothing(std::size_t) {
  asm volatile("");
  return nullptr;
}
[[gnu::noinline]] void free_nothing(void*) { asm volatile(""); }

void cached_pairs(int passes) {
  fmt::print("\na cached pair, not touched; ns, medians of {} passes\n", passes);
  fmt::print("{:>10} {:>10} {:>10} {:>10}\n", "size", "two calls", "raw", "DataPtr");
  for (std::size_t size = 64; size <= 256 * kMiB; size *= 4) {
    const std::vector<double> ns = medians(
        passes, {[&] {
                   return ns_per_call(200000, [&] {
                     void* data = allocate_nothing(size);
                     asm volatile("" : : "r"(data) : "memory");
                     free_nothing(data);
                   });
                 },
                 [&] {
                   return ns_per_call(200000, [&] {
                     void* data = host.raw_allocate(size);
                     asm volatile("" : : "r"(data) : "memory");
                     host.raw_deallocate(data);
                   });
                 },
                 [&] {
                   return ns_per_call(200000, [&] {
                     const tenon::DataPtr data = host.allocate(size);
                     asm volatile("" : : "r"(data.get()) : "memory");
                   });
                 }});
    fmt::print("{:>10} {:>10.1f} {:>10.1f} {:>10.1f}\n", tenon::format_byte_size(size), ns[0],
               ns[1], ns[2]);
  }
}

// 4 KiB blocks made on one thread and freed on another, over a ring of 1,024.
double handed_over(const Peer& peer) {
  constexpr int kBlocks = 200000;
  constexpr std::size_t kRing = 1024;
  std::vector<std::atomic<void*>> ring(kRing);
  const auto start = Clock::now();
  std::thread consumer([&] {
    for (std::size_t i = 0; i < kBlocks; ++i) {
      std::atomic<void*>& place = ring[i % kRing];
      void* data = nullptr;
      while ((data = place.load(std::memory_order_acquire)) == nullptr) std::this_thread::yield();
      place.store(nullptr, std::memory_order_release);
      peer.free(data);
    }
  });
  for (std::size_t i = 0; i < kBlocks; ++i) {
    void* data = peer.allocate(64, 4096);
    *static_cast<volatile char*>(data) = 1;
    std::atomic<void*>& place = ring[i % kRing];
    while (place.load(std::memory_order_acquire) != nullptr) std::this_thread::yield();
    place.store(data, std::memory_order_release);
  }
  consumer.join();
  const std::chrono::duration<double, std::nano> elapsed = Clock::now() - start;
  return elapsed.count() / kBlocks;
}

std::size_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  long total = 0;
  long resident = 0;
  const int read = std::fscanf(file, "%ld %ld", &total, &resident);
  std::fclose(file);
  return read == 2 ? static_cast<std::size_t>(resident) * static_cast<std::size_t>(getpagesize())
                   : 0;
}

struct SlotFigures {
  double ns_per_operation = 0;
  std::size_t peak_resident_bytes = 0;
  std::size_t peak_live_bytes = 0;  // in pages that were touched: what nobody can be below
};

// 64 live blocks of 4 KiB to 16 MiB (uniform in the logarithm), replaced in random order, one byte
// touched a page, after as many operations to warm up. In a process of its own, so that what it
// leaves resident is its own.
SlotFigures live_slots(const Peer& peer, std::uint64_t seed) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    constexpr int kWarmUp = 20000;
    constexpr int kOperations = 20000;
    const std::size_t before = resident_bytes();
    struct Block {
      void* data = nullptr;
      std::size_t page_bytes = 0;
    };
    std::vector<Block> slots(64);
    std::size_t live = 0;
    tenon::Random random(seed);
    SlotFigures figures;
    double start = 0;
    for (int i = 0; i < kWarmUp + kOperations; ++i) {
      if (i == kWarmUp) start = thread_ns();
      Block& slot = slots[random.below(slots.size())];
      if (slot.data != nullptr) peer.free(slot.data);
      const double exponent = 12 + 12 * static_cast<double>(random.below(1u << 20)) / (1u << 20);
      const auto size = static_cast<std::size_t>(std::exp2(exponent));
      slot.data = peer.allocate(64, tenon::align_up(size, 64));
      touch(slot.data, size);
      live -= slot.page_bytes;
      slot.page_bytes = tenon::align_up(size, 4096);
      live += slot.page_bytes;
      figures.peak_live_bytes = std::max(figures.peak_live_bytes, live);
      if (i % 64 == 0)
        figures.peak_resident_bytes =
            std::max(figures.peak_resident_bytes, resident_bytes() - before);
    }
    figures.ns_per_operation = (thread_ns() - start) / kOperations;
    const bool written = write(pipe_ends[1], &figures, sizeof figures) == sizeof figures;
    _exit(written ? 0 : 1);
  }
  close(pipe_ends[1]);
  SlotFigures figures;
  if (read(pipe_ends[0], &figures, sizeof figures) != sizeof figures) figures = {};
  close(pipe_ends[0]);
  return figures;
}

// Means over programs that no constant was chosen by.
constexpr std::uint64_t kSlotSeeds[] = {1000, 1001, 1002};

// Each side's time and memory; ours is to have the time of the fastest and, but for a twentieth,
// the memory of the smallest.
void print_live_slots(const std::vector<Peer>& all) {
  std::vector<SlotFigures> found;
  for (const Peer& peer : all) {
    SlotFigures& figures = found.emplace_back();
    for (const std::uint64_t seed : kSlotSeeds) {
      const SlotFigures one = live_slots(peer, seed);
      figures.ns_per_operation += one.ns_per_operation / std::size(kSlotSeeds);
      figures.peak_resident_bytes += one.peak_resident_bytes / std::size(kSlotSeeds);
      figures.peak_live_bytes += one.peak_live_bytes / std::size(kSlotSeeds);
    }
    fmt::print("{:>10} {:>10.1f} us {:>8.0f} MB\n", peer.name, figures.ns_per_operation / 1e3,
               static_cast<double>(figures.peak_resident_bytes) / 1e6);
  }
  fmt::print("{:>10} {:>22.0f} MB\n", "live", static_cast<double>(found[0].peak_live_bytes) / 1e6);
  const auto least = [&](auto member) {
    return (*std::min_element(found.begin() + 1, found.end(), [&](const auto& a, const auto& b) {
      return a.*member < b.*member;
    })).*member;
  };
  print_verdict("time over that of the fastest other",
                found[0].ns_per_operation / least(&SlotFigures::ns_per_operation), 1, " x");
  print_verdict("memory over that of the smallest other",
                static_cast<double>(found[0].peak_resident_bytes) /
                    static_cast<double>(least(&SlotFigures::peak_resident_bytes)),
                1.05, " x");
}

}  // namespace

int main(int argc, char** argv) {
  const auto [passes, all] = peer_options(argc, argv);

  fmt::print("64 live blocks of 4 KiB-16 MiB, page-touched: processor time an operation, peak "
             "resident; means of {} seeds\n", std::size(kSlotSeeds));
  print_live_slots(all);

  // With only one thread ever started, glibc skips its atomics: that would be no comparison.
  std::thread([] {}).join();
  const double touched = touched_pairs(all, passes);
  cached_pairs(passes);

  fmt::print("\n4 KiB made on one thread and freed on another; ns, medians of {} passes\n", passes);
  print_head(all, "");
  fmt::print("\n{:>10}", "");
  std::vector<std::function<double()>> subjects;
  for (const Peer& peer : all) subjects.push_back([&peer] { return handed_over(peer); });
  for (const double ns : medians(passes, subjects)) fmt::print(" {:>10}", readable(ns));
  fmt::print("\n\n");
  print_verdict("touched blocks, ours over the best other, worst size", touched, 1, " x");
  return 0;
}
