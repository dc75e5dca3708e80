#include "tenon/device/host/host_backend.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/device/os/os_memory.h"

namespace tenon {
namespace {

// Whether the system still knows the page at this address.
bool is_mapped(void* address) {
  unsigned char resident = 0;
  return ::mincore(address, 1, &resident) == 0;
}

// A host whose clock stands still until it is moved.
struct ClockedHost {
  explicit ClockedHost(HostOptions options = {}) : host(with_clock(std::move(options))) {}

  HostOptions with_clock(HostOptions options) {
    options.clock = [this] { return now_ns; };
    return options;
  }

  std::uint64_t now_ns = 1'000'000'000'000;
  HostBackend host;
};

TEST(HostBackend, LargeSegmentsAreAlignedForHugePages) {
  HostBackend host;
  for (const std::uint64_t size : {2 * kMiB, 3 * kMiB + 1, 64 * kMiB}) {
    const auto segment = host.allocate_segment(size);
    EXPECT_TRUE(is_aligned(reinterpret_cast<std::uintptr_t>(segment->base), 2 * kMiB));
    EXPECT_EQ(segment->size_bytes, align_up(size, os::page_size())) << "no memory is wasted";
    EXPECT_EQ(segment->base, segment->host);
    host.free_segment(*segment);
  }
}

TEST(HostBackend, ReusesAFreedSegment) {
  ClockedHost clocked;
  const auto segment = clocked.host.allocate_segment(kMiB);
  clocked.host.free_segment(*segment);
  EXPECT_EQ(clocked.host.cached_bytes(), kMiB);
  EXPECT_FALSE(clocked.host.allocate_segment(kMiB / 2)->base == segment->base)
      << "half of it would be wasted";
  const auto again = clocked.host.allocate_segment(kMiB - 4096);
  EXPECT_EQ(again->base, segment->base);
  EXPECT_EQ(again->size_bytes, kMiB);
  EXPECT_EQ(clocked.host.cached_bytes(), 0u);
}

TEST(HostBackend, TrimGivesCachedMemoryBackToTheSystem) {
  ClockedHost clocked;
  const auto segment = clocked.host.allocate_segment(kMiB);
  std::memset(segment->host, 1, kMiB);
  clocked.host.free_segment(*segment);
  EXPECT_TRUE(is_mapped(segment->base));
  EXPECT_EQ(clocked.host.trim(), kMiB);
  EXPECT_FALSE(is_mapped(segment->base));
  EXPECT_EQ(clocked.host.held_bytes(), 0u);
  EXPECT_EQ(clocked.host.trim(), 0u);
}

TEST(HostBackend, IdleMemoryDecays) {
  ClockedHost clocked({.decay_ns = 1000});
  const auto old = clocked.host.allocate_segment(kMiB);
  const auto young = clocked.host.allocate_segment(2 * kMiB);
  const auto kept = clocked.host.allocate_segment(4096);
  clocked.host.free_segment(*old);
  clocked.now_ns += 600;
  clocked.host.free_segment(*young);
  clocked.now_ns += 399;
  EXPECT_TRUE(clocked.host.allocate_segment(4096));
  EXPECT_EQ(clocked.host.cached_bytes(), 3 * kMiB);
  clocked.now_ns += 1;
  clocked.host.free_segment(*kept);
  EXPECT_EQ(clocked.host.cached_bytes(), 2 * kMiB + 4096) << "the old one alone is due";
  EXPECT_FALSE(is_mapped(old->base));
  clocked.now_ns += 1000;
  EXPECT_TRUE(clocked.host.allocate_segment(4096));
  EXPECT_EQ(clocked.host.cached_bytes(), 0u);
}

TEST(HostBackend, TheCacheIsBounded) {
  ClockedHost clocked({.cache_bytes = 3 * kMiB});
  std::vector<Segment> segments;
  for (int i = 0; i < 5; ++i) segments.push_back(*clocked.host.allocate_segment(kMiB));
  for (const Segment& segment : segments) clocked.host.free_segment(segment);
  EXPECT_EQ(clocked.host.cached_bytes(), 3 * kMiB);
  EXPECT_FALSE(is_mapped(segments[0].base));
  EXPECT_TRUE(is_mapped(segments[4].base));
  const auto large = clocked.host.allocate_segment(8 * kMiB);
  clocked.host.free_segment(*large);
  EXPECT_EQ(clocked.host.cached_bytes(), 0u) << "the newest is larger than the whole cache";
}

TEST(HostBackend, KeepsToItsLimitAndSpendsTheCacheFirst) {
  ClockedHost clocked({.limit_bytes = 8 * kMiB});
  HostBackend& host = clocked.host;
  EXPECT_EQ(host.memory().total_bytes, 8 * kMiB);
  const auto first = host.allocate_segment(3 * kMiB);
  const auto pages = host.create_pages(2 * kMiB);
  EXPECT_EQ(host.held_bytes(), 5 * kMiB);
  EXPECT_FALSE(host.allocate_segment(3 * kMiB + 1));
  EXPECT_FALSE(host.create_pages(4 * kMiB));
  host.free_segment(*first);
  EXPECT_EQ(host.held_bytes(), 5 * kMiB);
  EXPECT_TRUE(host.create_pages(6 * kMiB)) << "the cached segment makes room";
  EXPECT_EQ(host.cached_bytes(), 0u);
  EXPECT_LE(host.memory().free_bytes, 0u);
  host.release_pages(*pages);
  EXPECT_EQ(host.held_bytes(), 6 * kMiB);
}

// As under ulimit -v: addresses that the cache holds serve segments that none of it fits.
TEST(HostBackend, TheCacheGivesAddressesBackWhereTheSystemLacksThem) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs terabytes of addresses";
#endif
  constexpr int kNoLimits = 77;
  const pid_t child = ::fork();
  if (child == 0) {
    HostBackend host;
    std::vector<Segment> segments;
    for (int i = 0; i < 10; ++i) segments.push_back(host.allocate_segment(32 * kMiB).value());
    rlimit addresses = {};
    ::getrlimit(RLIMIT_AS, &addresses);
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    addresses.rlim_cur = pages * os::page_size() + 16 * kMiB;
    ::setrlimit(RLIMIT_AS, &addresses);
    rlimit set = {};
    ::getrlimit(RLIMIT_AS, &set);
    if (set.rlim_cur != addresses.rlim_cur) ::_exit(kNoLimits);
    bool refused = !host.allocate_segment(128 * kMiB) && !host.reserve_address(128 * kMiB);
    for (const Segment& segment : segments) host.free_segment(segment);
    const bool served = host.allocate_segment(128 * kMiB).has_value();
    segments = {host.allocate_segment(64 * kMiB).value()};
    host.free_segment(segments[0]);
    ::_exit(refused && served && host.reserve_address(160 * kMiB) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoLimits) GTEST_SKIP() << "qemu limits no program's addresses";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(HostBackend, AnotherProcessSeesExportedPages) {
  HostBackend host;
  const auto range = host.reserve_address(4 * kMiB);
  const auto pages = host.create_pages(2 * kMiB);
  ASSERT_TRUE(host.map(range->base, *pages) && host.set_access(range->base, 2 * kMiB));
  auto* text = reinterpret_cast<char*>(range->base);
  std::strcpy(text, "question");
  const std::int64_t token = host.export_pages(*pages);
  const pid_t child = ::fork();
  if (child == 0) {
    HostBackend other;
    const auto there = other.reserve_address(2 * kMiB);
    const PageHandle imported = other.import_pages(token, 2 * kMiB);
    if (!other.map(there->base, imported) || !other.set_access(there->base, 2 * kMiB)) ::_exit(1);
    auto* seen = reinterpret_cast<char*>(there->base);
    if (std::strcmp(seen, "question") != 0) ::_exit(2);
    std::strcpy(seen, "answer");
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_STREQ(text, "answer");
  ::close(static_cast<int>(token));
  host.unmap(range->base, *pages);
  host.release_pages(*pages);
  host.release_address(*range);
}

TEST(HostBackend, ImportRefusesOtherDescriptors) {
  HostBackend host;
  EXPECT_THROW(host.import_pages(-1, 2 * kMiB), DeviceError);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_THROW(host.import_pages(ends[0], 2 * kMiB), DeviceError);
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_EQ(host.held_bytes(), 0u);
}

TEST(HostBackend, GivesEverythingBackAtItsEnd) {
  void* base = nullptr;
  {
    HostBackend host;
    base = host.allocate_segment(kMiB)->base;
    const auto range = host.reserve_address(2 * kMiB);
    const auto pages = host.create_pages(2 * kMiB);
    ASSERT_TRUE(host.map(range->base, *pages));
  }
  EXPECT_FALSE(is_mapped(base));
}

TEST(HostBackend, IsOneForTheProcess) {
  EXPECT_EQ(&host_backend(), &host_backend());
  EXPECT_EQ(to_string(host_backend().device()), "cpu:0");
}

}  // namespace
}  // namespace tenon
