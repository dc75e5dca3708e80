#include "device/backend_conformance.h"

#include <chrono>
#include <thread>

#include "tenon/base/align.h"
#include "tenon/base/error.h"

namespace tenon {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BackendConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(VirtualMemoryConformance);

PageHandle BackendConformance::mapped(std::uintptr_t address, std::uint64_t size_bytes) {
  const auto pages = backend_->create_pages(size_bytes);
  EXPECT_TRUE(pages);
  if (pages) map_too(address, *pages);
  return pages.value_or(PageHandle{});
}

void BackendConformance::map_too(std::uintptr_t address, PageHandle pages) {
  EXPECT_TRUE(backend_->map(address, pages));
  EXPECT_TRUE(backend_->set_access(address, pages.size_bytes));
}

void BackendConformance::write(void* address, const std::string& text) {
  backend_->copy(address, text.data(), text.size(), stream());
  backend_->synchronize(stream());
}

std::string BackendConformance::read(void* address, const std::string& expected) {
  std::string text = limits().has_real_memory ? std::string(expected.size(), '?') : expected;
  backend_->copy(text.data(), address, text.size(), stream());
  backend_->synchronize(stream());
  return text;
}

void BackendConformance::keep_busy(const Segment& segment, char value, Stream stream) {
  for (int i = 0; i < 8; ++i) backend_->fill(segment.base, '-', kLargeBytes, stream);
  backend_->fill(segment.base, static_cast<std::uint8_t>(value), kLargeBytes, stream);
}

void BackendConformance::expect_filled(const Segment& segment, char value) {
  const std::string expected(16, value);
  for (const std::uint64_t at : {std::uint64_t{0}, kLargeBytes / 2, kLargeBytes - 16})
    EXPECT_EQ(read(static_cast<char*>(segment.base) + at, expected), expected) << "at " << at;
}

void VirtualMemoryConformance::SetUp() {
  if (!limits().has_virtual_memory) GTEST_SKIP() << "no virtual memory here";
  const auto range = backend_->reserve_address(16 * page());
  ASSERT_TRUE(range);
  range_ = *range;
}

void VirtualMemoryConformance::TearDown() {
  if (range_.size_bytes == 0) return;
  EXPECT_NO_THROW(backend_->release_address(range_));
}

void* VirtualMemoryConformance::at(std::uint64_t pages) const {
  return reinterpret_cast<void*>(address(pages));
}

// --- What it is.

TEST_P(BackendConformance, SaysWhatItIs) {
  EXPECT_FALSE(backend_->description().empty());
  EXPECT_EQ(backend_->description().find('\n'), std::string::npos);
  EXPECT_EQ(parse_device(to_string(backend_->device())), backend_->device());
  EXPECT_TRUE(is_power_of_two(limits().alignment));
  EXPECT_EQ(limits().has_virtual_memory, is_power_of_two(page()));
  EXPECT_GT(limits().recommended_working_set_bytes, 0u);
  EXPECT_GT(backend_->memory().total_bytes, 0u);
  EXPECT_LE(backend_->memory().free_bytes, backend_->memory().total_bytes);
}

TEST_P(BackendConformance, RefusesWhatItsLimitsDeny) {
  if (!limits().has_virtual_memory) {
    EXPECT_THROW(backend_->reserve_address(1 << 21), DeviceError);
    EXPECT_THROW(backend_->create_pages(1 << 21), DeviceError);
  }
  SUCCEED();
}

// --- Segments.

TEST_P(BackendConformance, SegmentsAreAlignedAndApart) {
  std::vector<Segment> held;
  for (const std::uint64_t size : {1, 511, 4096, 100000, 3 << 20}) {
    const auto segment = backend_->allocate_segment(size);
    ASSERT_TRUE(segment);
    EXPECT_GE(segment->size_bytes, size);
    EXPECT_EQ(segment->kind, MemoryKind::kDevice);
    const auto base = reinterpret_cast<std::uintptr_t>(segment->base);
    EXPECT_TRUE(is_aligned(base, limits().alignment));
    for (const Segment& other : held) {
      const auto other_base = reinterpret_cast<std::uintptr_t>(other.base);
      EXPECT_TRUE(base + segment->size_bytes <= other_base ||
                  other_base + other.size_bytes <= base);
    }
    if (limits().unified && limits().has_real_memory) {
      ASSERT_NE(segment->host, nullptr);
      static_cast<char*>(segment->host)[size - 1] = 'x';
    }
    held.push_back(*segment);
  }
  for (const Segment& segment : held) backend_->free_segment(segment);
}

TEST_P(BackendConformance, MoreThanAnyMachineHasIsLackOfMemory) {
  EXPECT_FALSE(backend_->allocate_segment(2 * kMaxRequestBytes));
  EXPECT_FALSE(backend_->allocate_segment(UINT64_MAX));
}

TEST_P(BackendConformance, MoreThanTheDeviceHasIsLackOfMemory) {
  EXPECT_EQ(backend_->total_bytes(), backend_->memory().total_bytes);
  EXPECT_FALSE(backend_->allocate_segment(backend_->total_bytes() + 1));
}

TEST_P(BackendConformance, FreeMemoryFallsAndRisesWithinTheCapacity) {
  const std::uint64_t capacity = GetParam().capacity_bytes;
  if (capacity == 0) GTEST_SKIP() << "other programs use this memory too";
  ASSERT_EQ(backend_->memory().total_bytes, capacity);
  const std::uint64_t at_first = backend_->memory().free_bytes;
  for (int round = 0; round < 2; ++round) {
    std::vector<Segment> held;
    std::uint64_t held_bytes = 0;
    while (auto segment = backend_->allocate_segment(capacity / 8)) {
      held.push_back(*segment);
      held_bytes += segment->size_bytes;
      ASSERT_LE(held_bytes, capacity);
      EXPECT_EQ(backend_->memory().free_bytes, at_first - held_bytes);
    }
    EXPECT_GE(held.size(), 6u);
    if (limits().has_virtual_memory) {
      EXPECT_FALSE(backend_->create_pages(align_up(capacity / 8, page())));
    }
    for (const Segment& segment : held) backend_->free_segment(segment);
    backend_->trim();
    EXPECT_EQ(backend_->memory().free_bytes, at_first);
  }
}

TEST_P(BackendConformance, AnEmptySegmentIsRefused) {
  EXPECT_THROW(backend_->allocate_segment(0), DeviceError);
}

TEST_P(BackendConformance, WhatIsNoSegmentCannotBeFreed) {
  const auto segment = backend_->allocate_segment(4096);
  Segment shifted = *segment;
  shifted.base = static_cast<char*>(segment->base) + 512;
  EXPECT_THROW(backend_->free_segment(shifted), DeviceError);
  Segment larger = *segment;
  larger.size_bytes *= 2;
  EXPECT_THROW(backend_->free_segment(larger), DeviceError);
  backend_->free_segment(*segment);
  EXPECT_THROW(backend_->free_segment(*segment), DeviceError);
  const auto next = backend_->allocate_segment(4096);
  ASSERT_TRUE(next);
  EXPECT_THROW(backend_->free_segment(*segment), DeviceError) << "though the address may be back";
  backend_->free_segment(*next);
}

// --- Contents.

TEST_P(BackendConformance, CopiesAndFillsInStreamOrder) {
  const auto first = backend_->allocate_segment(10000);
  const auto second = backend_->allocate_segment(10000);
  backend_->fill(first->base, 'a', 10000, stream());
  write(static_cast<char*>(first->base) + 5000, "tenon");
  backend_->copy(second->base, first->base, 10000, stream());
  EXPECT_EQ(read(static_cast<char*>(second->base) + 4998, "aatenonaa"), "aatenonaa");
  backend_->copy(second->base, first->base, 0, stream());
  backend_->free_segment(*first);
  backend_->free_segment(*second);
}

TEST_P(BackendConformance, ContentsBeyondASegmentAreRefused) {
  if (!GetParam().checks_contents) GTEST_SKIP() << "the driver does not look";
  const auto segment = backend_->allocate_segment(4096);
  EXPECT_THROW(backend_->fill(segment->base, 0, segment->size_bytes + 1, stream()), DeviceError);
  std::string text(segment->size_bytes + 1, ' ');
  EXPECT_THROW(backend_->copy(segment->base, text.data(), text.size(), stream()), DeviceError);
  EXPECT_THROW(backend_->copy(text.data(), segment->base, text.size(), stream()), DeviceError);
  EXPECT_THROW(backend_->fill(nullptr, 0, 1, stream()), DeviceError);
  backend_->free_segment(*segment);
}

// --- Virtual memory.

TEST_P(VirtualMemoryConformance, MappedPagesCanBeUsed) {
  const PageHandle pages = mapped(address(0), 2 * page());
  write(static_cast<char*>(at(1)) - 3, "border");
  EXPECT_EQ(read(static_cast<char*>(at(1)) - 3, "border"), "border");
  backend_->unmap(address(0), pages);
  backend_->release_pages(pages);
}

TEST_P(VirtualMemoryConformance, ContentsMoveWithTheirPages) {
  const PageHandle pages = mapped(address(0), page());
  write(at(0), "movable");
  backend_->unmap(address(0), pages);
  map_too(address(7), pages);
  EXPECT_EQ(read(at(7), "movable"), "movable");
  backend_->unmap(address(7), pages);
  backend_->release_pages(pages);
}

TEST_P(VirtualMemoryConformance, OneHandleAtTwoAddresses) {
  const PageHandle pages = mapped(address(0), page());
  if (!limits().can_map_twice) {
    EXPECT_THROW(backend_->map(address(4), pages), DeviceError);
  } else {
    map_too(address(4), pages);
    write(at(4), "seen twice");
    EXPECT_EQ(read(at(0), "seen twice"), "seen twice");
    backend_->unmap(address(0), pages);
    EXPECT_EQ(read(at(4), "seen twice"), "seen twice");
    backend_->unmap(address(4), pages);
    map_too(address(0), pages);
  }
  backend_->unmap(address(0), pages);
  backend_->release_pages(pages);
}

TEST_P(VirtualMemoryConformance, ReleasedPagesLiveUntilTheirLastMappingGoes) {
  const PageHandle pages = mapped(address(0), page());
  write(at(0), "still here");
  backend_->release_pages(pages);
  EXPECT_EQ(read(at(0), "still here"), "still here");
  EXPECT_THROW(backend_->map(address(4), pages), DeviceError);
  EXPECT_THROW(backend_->release_pages(pages), DeviceError);
  backend_->unmap(address(0), pages);
}

TEST_P(VirtualMemoryConformance, AccessIsSetForManyHandlesAtOnce) {
  const auto small = backend_->create_pages(page());
  const auto large = backend_->create_pages(3 * page());
  ASSERT_TRUE(small && large);
  ASSERT_TRUE(backend_->map(address(2), *small));
  ASSERT_TRUE(backend_->map(address(3), *large));
  ASSERT_TRUE(backend_->set_access(address(2), 4 * page()));
  backend_->fill(at(2), 'z', 4 * page(), stream());
  EXPECT_EQ(read(static_cast<char*>(at(6)) - 2, "zz"), "zz");
  backend_->synchronize();
  backend_->unmap(address(2), *small);
  backend_->unmap(address(3), *large);
  backend_->release_pages(*small);
  backend_->release_pages(*large);
}

TEST_P(VirtualMemoryConformance, WrongSizesAreRefused) {
  EXPECT_THROW(backend_->reserve_address(0), DeviceError);
  EXPECT_THROW(backend_->reserve_address(page() + 1), DeviceError);
  EXPECT_THROW(backend_->create_pages(0), DeviceError);
  EXPECT_THROW(backend_->create_pages(page() / 2), DeviceError);
  EXPECT_FALSE(backend_->create_pages(2 * kMaxRequestBytes));
  EXPECT_FALSE(backend_->reserve_address(2 * kMaxRequestBytes));
}

TEST_P(VirtualMemoryConformance, WrongMappingsAreRefused) {
  const PageHandle pages = mapped(address(2), 2 * page());
  const auto other = backend_->create_pages(2 * page());
  ASSERT_TRUE(other);
  EXPECT_THROW(backend_->map(address(0) + page() / 2, *other), DeviceError) << "between pages";
  EXPECT_THROW(backend_->map(address(15), *other), DeviceError) << "beyond the range";
  EXPECT_THROW(backend_->map(address(1), *other), DeviceError) << "overlaps from below";
  EXPECT_THROW(backend_->map(address(3), *other), DeviceError) << "overlaps from above";
  EXPECT_THROW(backend_->map(address(0), PageHandle{1u << 30, page()}), DeviceError);
  EXPECT_THROW(backend_->map(address(0), PageHandle{other->id, page()}), DeviceError) << "size";
  EXPECT_THROW(backend_->set_access(address(0), page()), DeviceError) << "nothing there";
  EXPECT_THROW(backend_->set_access(address(2), page()), DeviceError) << "half a handle";
  EXPECT_THROW(backend_->unmap(address(0), *other), DeviceError) << "never mapped";
  EXPECT_THROW(backend_->unmap(address(2), *other), DeviceError) << "another handle";
  EXPECT_THROW(backend_->unmap(address(3), pages), DeviceError) << "its second page";
  EXPECT_THROW(backend_->release_address(range_), DeviceError) << "still mapped";
  EXPECT_THROW(backend_->release_address({range_.base, page()}), DeviceError) << "a part";
  backend_->unmap(address(2), pages);
  EXPECT_THROW(backend_->unmap(address(2), pages), DeviceError) << "twice";
  backend_->release_pages(pages);
  map_too(address(2), *other);
  backend_->unmap(address(2), *other);
  backend_->release_pages(*other);
}

TEST_P(VirtualMemoryConformance, ErrorsNameCallArgumentsAndReason) {
  try {
    backend_->unmap(address(1), PageHandle{77, page()});
    FAIL() << "unmapped nothing";
  } catch (const DeviceError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("unmap("), std::string::npos) << text;
    EXPECT_NE(text.find("77"), std::string::npos) << text;
    EXPECT_NE(text.find(": "), std::string::npos) << text;
  }
}

TEST_P(VirtualMemoryConformance, ContentsWithoutMemoryAreRefused) {
  if (!GetParam().checks_contents) GTEST_SKIP() << "the driver does not look";
  EXPECT_THROW(backend_->fill(at(0), 0, 1, stream()), DeviceError);
  const auto pages = backend_->create_pages(page());
  ASSERT_TRUE(backend_->map(address(0), *pages));
  EXPECT_THROW(backend_->fill(at(0), 0, 1, stream()), DeviceError) << "before set_access";
  ASSERT_TRUE(backend_->set_access(address(0), page()));
  backend_->fill(at(0), 0, page(), stream());
  EXPECT_THROW(backend_->fill(at(0), 0, page() + 1, stream()), DeviceError);
  backend_->synchronize();  // unmapping waits for nobody
  backend_->unmap(address(0), *pages);
  EXPECT_THROW(backend_->fill(at(0), 0, 1, stream()), DeviceError) << "after unmap";
  backend_->release_pages(*pages);
}

TEST_P(VirtualMemoryConformance, PagesPassBetweenProcesses) {
  const PageHandle pages = mapped(address(0), page());
  if (!limits().can_export) {
    EXPECT_THROW(backend_->export_pages(pages), DeviceError);
    EXPECT_THROW(backend_->import_pages(1, page()), DeviceError);
    backend_->unmap(address(0), pages);
    return backend_->release_pages(pages);
  }
  write(at(0), "shared");
  const std::int64_t token = backend_->export_pages(pages);
  EXPECT_THROW(backend_->import_pages(token, 2 * page()), DeviceError) << "wrong size";
  const PageHandle imported = backend_->import_pages(token, page());
  map_too(address(4), imported);
  EXPECT_EQ(read(at(4), "shared"), "shared");
  backend_->unmap(address(0), pages);
  backend_->release_pages(pages);
  EXPECT_EQ(read(at(4), "shared"), "shared");
  backend_->unmap(address(4), imported);
  backend_->release_pages(imported);
}

// --- Streams and events.

TEST_P(BackendConformance, EventsCompleteOnceTheHostHasWaited) {
  const Stream first = backend_->create_stream();
  const Stream second = backend_->create_stream();
  EXPECT_NE(first, second);
  EXPECT_NE(first.id, 0u);
  const Event produced = backend_->record(first);
  backend_->stream_wait(second, produced);
  const Event consumed = backend_->record(second);
  backend_->wait(consumed);
  EXPECT_TRUE(backend_->query(consumed));
  EXPECT_TRUE(backend_->query(produced));
  backend_->synchronize(first);
  backend_->synchronize();
  backend_->destroy_event(produced);
  backend_->destroy_event(consumed);
  backend_->destroy_stream(first);
  backend_->destroy_stream(second);
}

TEST_P(BackendConformance, AStreamThatWaitsForAnEventSeesTheWorkBeforeIt) {
  const Stream producer = backend_->create_stream();
  const Stream consumer = backend_->create_stream();
  const auto source = backend_->allocate_segment(kLargeBytes);
  const auto target = backend_->allocate_segment(kLargeBytes);
  ASSERT_TRUE(source && target);
  for (const char value : {'a', 'b', 'c'}) {
    keep_busy(*source, value, producer);
    const Event produced = backend_->record(producer);
    backend_->stream_wait(consumer, produced);
    backend_->copy(target->base, source->base, kLargeBytes, consumer);
    const Event copied = backend_->record(consumer);
    backend_->wait(copied);
    expect_filled(*target, value);
    backend_->destroy_event(produced);
    backend_->destroy_event(copied);
  }
  for (const auto& segment : {source, target}) backend_->free_segment(*segment);
  for (const Stream used : {producer, consumer}) backend_->destroy_stream(used);
}

// Polled, as allocators do it. Where nothing moves until the host waits, it stays incomplete.
TEST_P(BackendConformance, AnEventIsCompleteOnlyOnceTheWorkBeforeItIsDone) {
  const Stream producer = backend_->create_stream();
  const Stream reader = backend_->create_stream();
  const auto source = backend_->allocate_segment(kLargeBytes);
  const auto target = backend_->allocate_segment(kLargeBytes);
  ASSERT_TRUE(source && target);
  for (const char value : {'a', 'b', 'c'}) {
    keep_busy(*source, value, producer);
    const Event produced = backend_->record(producer);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (!backend_->query(produced))
      if (std::chrono::steady_clock::now() > deadline) backend_->wait(produced);
    backend_->copy(target->base, source->base, kLargeBytes, reader);
    backend_->synchronize(reader);
    expect_filled(*target, value);
    backend_->destroy_event(produced);
  }
  for (const auto& segment : {source, target}) backend_->free_segment(*segment);
  for (const Stream used : {producer, reader}) backend_->destroy_stream(used);
}

TEST_P(BackendConformance, FreeingASegmentWaitsForAllWork) {
  const Stream producer = backend_->create_stream();
  const Stream other = backend_->create_stream();
  const auto source = backend_->allocate_segment(kLargeBytes);
  const auto target = backend_->allocate_segment(kLargeBytes);
  ASSERT_TRUE(source && target);
  keep_busy(*source, 'a', producer);
  backend_->copy(target->base, source->base, kLargeBytes, producer);
  const Event copied = backend_->record(producer);
  backend_->free_segment(*source);
  EXPECT_TRUE(backend_->query(copied));
  const auto next = backend_->allocate_segment(kLargeBytes);  // the same memory, as a rule
  ASSERT_TRUE(next);
  backend_->fill(next->base, 'x', kLargeBytes, other);
  backend_->synchronize();
  expect_filled(*target, 'a');
  backend_->destroy_event(copied);
  for (const auto& segment : {target, next}) backend_->free_segment(*segment);
  for (const Stream used : {producer, other}) backend_->destroy_stream(used);
}

TEST_P(BackendConformance, UnknownStreamsAndEventsAreRefused) {
  const Stream unknown{backend_->device(), 1u << 20};
  EXPECT_THROW(backend_->record(unknown), DeviceError);
  EXPECT_THROW(backend_->synchronize(unknown), DeviceError);
  EXPECT_THROW(backend_->destroy_stream(unknown), DeviceError);
  EXPECT_THROW(backend_->destroy_stream(stream()), DeviceError) << "the default stream stays";
  EXPECT_THROW(backend_->record(Stream{Device{DeviceType::kMeta, 0}, 0}), DeviceError);
  const Stream gone = backend_->create_stream();
  backend_->destroy_stream(gone);
  EXPECT_THROW(backend_->record(gone), DeviceError);

  const Event event = backend_->record(stream());
  backend_->destroy_event(event);
  const Event next = backend_->record(stream());
  EXPECT_THROW(backend_->query(event), DeviceError);
  EXPECT_THROW(backend_->wait(event), DeviceError);
  EXPECT_THROW(backend_->stream_wait(stream(), event), DeviceError);
  EXPECT_THROW(backend_->destroy_event(event), DeviceError);
  EXPECT_THROW(backend_->query(Event{}), DeviceError);
  backend_->destroy_event(next);
}

// --- Accounts.

TEST_P(VirtualMemoryConformance, TheLedgerCountsEveryCall) {
  const DriverLedger before = backend_->ledger();
  const auto segment = backend_->allocate_segment(4096);
  backend_->free_segment(*segment);
  {
    const MovingScope moving(*backend_);
    const PageHandle pages = mapped(address(0), page());
    backend_->unmap(address(0), pages);
    backend_->release_pages(pages);
  }
  const Event event = backend_->record(stream());
  backend_->query(event);
  backend_->wait(event);
  backend_->destroy_event(event);
  const DriverLedger after = backend_->ledger();
  for (const DriverCall call :
       {DriverCall::kAllocate, DriverCall::kFree, DriverCall::kCreate, DriverCall::kRelease,
        DriverCall::kMap, DriverCall::kSetAccess, DriverCall::kUnmap, DriverCall::kEventRecord,
        DriverCall::kEventQuery, DriverCall::kHostWait})
    EXPECT_EQ(after.count(call), before.count(call) + 1) << driver_call_name(call);
  EXPECT_EQ(after.memory_calls(), before.memory_calls() + 7);
  EXPECT_GT(after.moving_stall_ns, before.moving_stall_ns);
  EXPECT_GT(after.stall_ns - before.stall_ns, after.moving_stall_ns - before.moving_stall_ns);
}

TEST_P(VirtualMemoryConformance, ThreadsMayCallAtOnce) {
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      const Stream own = backend_->create_stream();
      for (int round = 0; round < 50; ++round) {
        const auto segment = backend_->allocate_segment(1000 * (t + 1));
        const PageHandle pages = mapped(address(4 * t), page());
        backend_->fill(segment->base, static_cast<std::uint8_t>(t), 1000, own);
        backend_->copy(at(4 * t), segment->base, 1000, own);
        const Event event = backend_->record(own);
        backend_->wait(event);
        backend_->destroy_event(event);
        const std::string expected(1000, static_cast<char>(t));
        EXPECT_EQ(read(at(4 * t), expected), expected);
        backend_->unmap(address(4 * t), pages);
        backend_->release_pages(pages);
        backend_->free_segment(*segment);
      }
      backend_->destroy_stream(own);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tenon
