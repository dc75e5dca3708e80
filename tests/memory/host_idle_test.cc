// What the host allocator does with memory that nobody uses: by the clock, when asked, when memory
// is short; and over fork.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "tenon/base/byte_size.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/memory/host/host_allocator.h"

namespace tenon {
namespace {

std::size_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  long total = 0;
  long resident = 0;
  const int read = file == nullptr ? 0 : std::fscanf(file, "%ld %ld", &total, &resident);
  if (file != nullptr) std::fclose(file);
  return read == 2 ? static_cast<std::size_t>(resident * sysconf(_SC_PAGESIZE)) : 0;
}

bool becomes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000 && !condition(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return condition();
}

std::vector<DataPtr> touched(HostAllocator& host, std::size_t count, std::size_t size_bytes) {
  std::vector<DataPtr> blocks;
  for (std::size_t i = 0; i < count; ++i) {
    blocks.push_back(host.allocate(size_bytes));
    std::memset(blocks.back().get(), 1, size_bytes);
  }
  return blocks;
}

HostOptions decay_in(std::uint64_t ms) {
  HostOptions options;
  options.decay_ns = ms * 1'000'000;
  return options;
}

TEST(HostIdle, GoesBackByItselfWhileTheProgramDoesNothing) {
  HostBackend backend(decay_in(20));
  HostAllocator host(backend);
  for (const std::size_t size : {std::size_t{3000}, std::size_t{50000}, kMiB, 128 * kMiB}) {
    std::vector<DataPtr> blocks = touched(host, 128 * kMiB / size, size);
    const DataPtr kept = host.allocate(size);
    std::memset(kept.get(), 7, size);
    const std::size_t full = resident_bytes();
    blocks.clear();
    EXPECT_TRUE(becomes_true([&] { return resident_bytes() + 100 * kMiB < full; })) << size;
    for (std::size_t i = 0; i < size; i += 64)
      ASSERT_EQ(static_cast<const char*>(kept.get())[i], 7) << "what is in use stays";
    host.check_invariants();
  }
}

TEST(HostIdle, TheBlockFreedLastGoesBackToo) {
  HostBackend backend(decay_in(20));
  HostAllocator host(backend);
  for (int i = 0; i < 3; ++i) touched(host, 1, 128 * kMiB).clear();
  EXPECT_TRUE(becomes_true([&] { return backend.held_bytes() == 0; }));
  EXPECT_TRUE(becomes_true([&] { return host.reserved_bytes() == 0; }));  // counted after it went
  touched(host, 1, 128 * kMiB).clear();  // and the thread wakes for the next
  EXPECT_TRUE(becomes_true([&] { return backend.held_bytes() == 0; }));
}

TEST(HostIdle, TrimGivesItBackAtOnce) {
  HostBackend backend(decay_in(3'600'000));
  HostAllocator host(backend);
  std::vector<DataPtr> blocks = touched(host, 100, kMiB);
  const DataPtr kept = host.allocate(100);
  const std::size_t full = resident_bytes();
  blocks.clear();
  host.trim();
  EXPECT_LT(resident_bytes() + 80 * kMiB, full);
  host.trim();
  host.check_invariants();
}

TEST(HostIdle, OtherThreadsCachesAreTrimmedToo) {
  HostBackend backend(decay_in(3'600'000));
  HostAllocator host(backend);
  std::atomic<int> step = 0;
  std::thread other([&] {
    touched(host, 1000, 5000).clear();
    touched(host, 1, 50 * kMiB).clear();
    step = 1;
    while (step != 2) std::this_thread::yield();
    touched(host, 10, 5000).clear();
  });
  while (step != 1) std::this_thread::yield();
  host.trim();
  EXPECT_EQ(backend.held_bytes(), 0u);
  step = 2;
  other.join();
  host.check_invariants();
}

#if !defined(__SANITIZE_THREAD__)  // which does not follow a fork among threads
// Two blocks in turn, of which neither fits in the other's place.
TEST(HostIdle, WhatIsResidentStaysNearTheHighestUseUnlessThatCostsTooManyFaults) {
  HostBackend backend(decay_in(3'600'000));
  HostAllocator host(backend);
  const std::size_t before = resident_bytes();
  std::vector<DataPtr> block = touched(host, 1, 60 * kMiB);
  const std::vector<DataPtr> between = touched(host, 1, 100'000);
  block.clear();
  block = touched(host, 1, 61 * kMiB);
  EXPECT_LT(resident_bytes() - before, 90 * kMiB) << "of 121 MiB that were touched";
  for (int i = 0; i < 8; ++i) {
    block.clear();
    block = touched(host, 1, (60 + i % 2) * kMiB);
  }
  EXPECT_GT(resident_bytes() - before, 110 * kMiB) << "both are wanted all the time";
  for (std::size_t i = 0; i < 100'000; ++i)
    ASSERT_EQ(static_cast<const char*>(between[0].get())[i], 1) << "what is in use stays";
  host.check_invariants();
}

TEST(HostIdle, ForkedChildHasTheWholeAllocator) {
  HostBackend backend(decay_in(1));
  HostAllocator host(backend);
  std::atomic<bool> stop = false;
  std::vector<std::thread> busy;
#if defined(__SANITIZE_ADDRESS__)
  constexpr int kBusy = 0;  // the sanitizer's own operator new does not survive a fork beside it
#else
  constexpr int kBusy = 3;
#endif
  for (int t = 0; t < kBusy; ++t)
    busy.emplace_back([&] {
      while (!stop) {
        touched(host, 20, 3000).clear();
        touched(host, 2, kMiB / 2).clear();
      }
    });
  const std::vector<DataPtr> mine = touched(host, 10, 1000);
  for (int round = 0; round < 30; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);
      std::vector<DataPtr> here = touched(host, 100, 3000);
      std::thread([&] { touched(host, 5, kMiB).clear(); }).join();
      here.clear();
      host.trim();
      host.check_invariants();
      bool whole = true;
      for (const DataPtr& block : mine) whole = whole && *static_cast<char*>(block.get()) == 1;
      _exit(whole ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  stop = true;
  for (std::thread& thread : busy) thread.join();
}
#endif

}  // namespace
}  // namespace tenon
