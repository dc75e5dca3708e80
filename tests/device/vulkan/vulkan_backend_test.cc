#include "tenon/device/vulkan/vulkan_backend.h"

#include <gmock/gmock.h>

#include <cstring>
#include <numeric>
#include <thread>

#include "support/vulkan.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/random.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;

TEST(VulkanTest, ThereIsADriverToTestWith) {
  ASSERT_FALSE(testing::vulkan_drivers().empty())
      << "install mesa-vulkan-drivers (make setup does)";
}

TEST(VulkanTest, SaysWhatToInstallWhereThereIsNoLoader) {
  try {
    VulkanDriverOptions options;
    options.loader = "libno_such_vulkan.so";
    VulkanDriver::open(options);
    FAIL() << "opened nothing";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("libno_such_vulkan.so"));
    EXPECT_THAT(error.what(), HasSubstr("install"));
  }
}

TEST(VulkanTest, ALibraryThatIsNoLoaderIsRefused) {
  VulkanDriverOptions options;
  options.loader = "libc.so.6";
  EXPECT_THROW(VulkanDriver::open(options), DeviceError);
}

// A driver, and whether contents are staged as on a discrete card.
struct Machine {
  std::string driver;
  bool staged = false;

  friend void PrintTo(const Machine& machine, std::ostream* out) { *out << machine.driver; }
};

class VulkanDevices : public ::testing::TestWithParam<Machine> {
 protected:
  VulkanDevices()
      : vulkan_(GetParam().driver),
        backend_(vulkan_.backend({.stage_always = GetParam().staged})) {}

  Stream stream() const { return {backend_->device(), 0}; }
  std::string read(const void* from, std::size_t size, Stream stream) {
    std::string text(size, '?');
    backend_->copy(text.data(), from, size, stream);
    return text;
  }

  testing::Vulkan vulkan_;
  std::unique_ptr<VulkanBackend> backend_;
};

std::vector<Machine> machines() {
  std::vector<Machine> made;
  for (const auto& driver : testing::vulkan_drivers())
    for (const bool staged : {false, true}) made.push_back({driver.name, staged});
  return made;
}

INSTANTIATE_TEST_SUITE_P(Vulkan, VulkanDevices, ::testing::ValuesIn(machines()),
                         [](const auto& machine) {
                           return machine.param.driver + (machine.param.staged ? "_staged" : "");
                         });

TEST_P(VulkanDevices, HostAndDeviceShareOneMemoryUnlessItIsStaged) {
  EXPECT_EQ(backend_->limits().unified, !GetParam().staged);
  const auto segment = backend_->allocate_segment(kMiB);
  ASSERT_TRUE(segment);
  EXPECT_EQ(segment->host != nullptr, !GetParam().staged);
  const auto pinned = backend_->allocate_segment(kMiB, MemoryKind::kPinned);
  ASSERT_TRUE(pinned && pinned->host != nullptr);
  std::memset(pinned->host, 'p', kMiB);
  backend_->copy(segment->base, pinned->base, kMiB, stream());
  EXPECT_EQ(read(static_cast<char*>(segment->base) + kMiB - 3, 3, stream()), "ppp");
  if (!GetParam().staged) {
    EXPECT_EQ(std::memcmp(segment->host, pinned->host, kMiB), 0) << "without a copy";
  } else {
    EXPECT_THROW(backend_->allocate_segment(kMiB, MemoryKind::kShared), DeviceError);
  }
  EXPECT_THROW(backend_->allocate_segment(kMiB, MemoryKind::kManaged), DeviceError);
  backend_->free_segment(*segment);
  backend_->free_segment(*pinned);
}

TEST_P(VulkanDevices, TexelsBeginAtMultiplesOfSixteenBytesOfASegment) {
  const auto segment = backend_->allocate_segment(kMiB);
  const auto* base = static_cast<const char*>(segment->base);
  EXPECT_EQ(backend_->texel_at(base), 0u);
  EXPECT_EQ(backend_->texel_at(base + 4096), 256u);
  EXPECT_EQ(backend_->texel_at(base + 4), std::nullopt);
  EXPECT_EQ(backend_->texel_at(&segment), std::nullopt) << "the host's";
  const VulkanKernel kernel{{}, {}, true};
  EXPECT_THROW(backend_->launch(kernel, {}, {1, 1, 1}, stream(), {base, base + 4}),
               InvalidArgument);
  backend_->free_segment(*segment);
}

TEST_P(VulkanDevices, FillsAndCopiesAtEveryOffset) {
  const auto segment = backend_->allocate_segment(4096);
  auto* base = static_cast<char*>(segment->base);
  std::string expected(4096, '\0');
  backend_->fill(base, 0, 4096, stream());
  Random random(3);
  for (int i = 0; i < 200; ++i) {
    const std::size_t at = random.below(4000);
    const std::size_t size = 1 + random.below(random.chance(0.5) ? 9 : 4096 - at);
    const std::size_t end = std::min<std::size_t>(4096, at + size);
    const auto value = static_cast<std::uint8_t>(random.below(256));
    if (random.chance(0.5)) {
      backend_->fill(base + at, value, end - at, stream());
    } else {
      const std::string text(end - at, static_cast<char>(value));
      backend_->copy(base + at, text.data(), text.size(), stream());
    }
    std::fill(expected.begin() + static_cast<std::ptrdiff_t>(at),
              expected.begin() + static_cast<std::ptrdiff_t>(end), static_cast<char>(value));
  }
  EXPECT_EQ(read(base, 4096, stream()), expected);
  backend_->free_segment(*segment);
}

TEST_P(VulkanDevices, ContentsLargerThanTheRingAreWhole) {
  constexpr std::size_t kBytes = 37 * kMiB + 5;
  const auto segment = backend_->allocate_segment(kBytes);
  std::vector<std::uint32_t> numbers(kBytes / 4 + 1);
  std::iota(numbers.begin(), numbers.end(), 7u);
  backend_->fill(segment->base, 1, kBytes, stream());  // so the stream is busy
  backend_->copy(segment->base, numbers.data(), kBytes, stream());
  std::vector<std::uint32_t> back(numbers.size());
  backend_->copy(back.data(), segment->base, kBytes, stream());
  EXPECT_EQ(std::memcmp(back.data(), numbers.data(), kBytes), 0);
  backend_->free_segment(*segment);
}

TEST_P(VulkanDevices, StreamsRunInTheOrderThatEventsGive) {
  const auto segment = backend_->allocate_segment(4 * kMiB);
  auto* base = static_cast<char*>(segment->base);
  std::vector<Stream> streams;
  for (int i = 0; i < 8; ++i) streams.push_back(backend_->create_stream());
  for (int round = 0; round < 20; ++round)
    for (std::size_t i = 0; i < streams.size(); ++i) {  // each passes the buffer to the next
      backend_->fill(base, static_cast<std::uint8_t>(round * 8 + static_cast<int>(i)), 4 * kMiB,
                     streams[i]);
      const Event filled = backend_->record(streams[i]);
      backend_->stream_wait(streams[(i + 1) % streams.size()], filled);
      backend_->destroy_event(filled);
    }
  const std::string last = read(base, 4 * kMiB, streams[0]);
  EXPECT_EQ(last, std::string(4 * kMiB, static_cast<char>(19 * 8 + 7)));
  for (const Stream& each : streams) backend_->destroy_stream(each);
  backend_->free_segment(*segment);
}

// Two streams wait for each other's past in turn; on one queue that must not stand still.
TEST_P(VulkanDevices, StreamsThatWaitForEachOtherDoNotStandStill) {
  const auto segment = backend_->allocate_segment(4096);
  const Stream a = backend_->create_stream();
  const Stream b = backend_->create_stream();
  for (int i = 0; i < 100; ++i) {
    backend_->fill(segment->base, 1, 4096, a);
    const Event after_a = backend_->record(a);
    backend_->stream_wait(b, after_a);
    backend_->fill(segment->base, 2, 4096, b);
    const Event after_b = backend_->record(b);
    backend_->stream_wait(a, after_b);
    backend_->destroy_event(after_a);
    backend_->destroy_event(after_b);
  }
  backend_->synchronize();
  EXPECT_EQ(read(segment->base, 2, a), "\2\2");
  backend_->destroy_stream(a);
  backend_->destroy_stream(b);
  backend_->free_segment(*segment);
}

TEST_P(VulkanDevices, CommandsAreSubmittedTogether) {
  const auto segment = backend_->allocate_segment(4096);
  backend_->synchronize();
  const std::uint64_t before = backend_->submissions();
  for (int i = 0; i < 50; ++i) backend_->fill(segment->base, 1, 4096, stream());
  const Event event = backend_->record(stream());
  EXPECT_EQ(backend_->submissions(), before) << "nothing has asked";
  backend_->wait(event);
  EXPECT_EQ(backend_->submissions(), before + 1);
  backend_->destroy_event(event);
  backend_->free_segment(*segment);
}

TEST_P(VulkanDevices, StreamsThatComeAndGoKeepNothing) {
  std::vector<Event> events;
  for (int i = 0; i < 200; ++i) {
    const Stream each = backend_->create_stream();
    events.push_back(backend_->record(each));
    backend_->destroy_stream(each);
  }
  for (const Event& event : events) {
    EXPECT_TRUE(backend_->query(event));
    backend_->destroy_event(event);
  }
}

TEST_P(VulkanDevices, WhatExceedsTheDriversLargestAllocationIsLackOfMemory) {
  EXPECT_FALSE(backend_->allocate_segment(64 * kGiB));
}

// SwiftShader allows 4,096 allocations, lavapipe any number.
TEST_P(VulkanDevices, MoreSegmentsThanTheDriverAllowsAreLackOfMemory) {
  std::vector<Segment> held;
  for (int i = 0; i < 5000; ++i)
    if (const auto segment = backend_->allocate_segment(64)) held.push_back(*segment);
  if (GetParam().driver == "lavapipe") {
    EXPECT_EQ(held.size(), 5000u);
  } else {
    EXPECT_LT(held.size(), 4097u);
    EXPECT_GT(held.size(), 4090u);
  }
  backend_->free_segment(held.back());
  const auto again = backend_->allocate_segment(64);
  ASSERT_TRUE(again);
  held.back() = *again;
  for (const Segment& segment : held) backend_->free_segment(segment);
}

TEST_P(VulkanDevices, ThreadsMayCallAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([this, t] {
      const Stream own = backend_->create_stream();
      for (int round = 0; round < 30; ++round) {
        const auto segment = backend_->allocate_segment(10000);
        backend_->fill(segment->base, static_cast<std::uint8_t>(t), 10000, own);
        const Event event = backend_->record(own);
        backend_->wait(event);
        backend_->destroy_event(event);
        const std::string expected(10000, static_cast<char>(t));
        EXPECT_EQ(read(segment->base, 10000, own), expected);
        backend_->free_segment(*segment);
      }
      backend_->destroy_stream(own);
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tenon
