// Buffers, their metadata and limits by the MPS and MLX interfaces, over each kind of memory that
// host and device share.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "memory/unified_devices.h"
#include "support/cuda_stand_in.h"
#include "tenon/base/error.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/memory/compat/mlx.h"
#include "tenon/memory/unified/unified_allocator.h"

namespace tenon {
namespace {

using unified::Storage;

class UnifiedMemories : public ::testing::TestWithParam<std::string> {
 protected:
  UnifiedMemories() {
    if (GetParam() == "simulated") {
      backend_ = std::make_unique<SimBackend>(unified_device(64 * kGiB));
    } else if (GetParam() == "host") {
      backend_ = std::make_unique<HostBackend>();
    } else if (const auto more = more_memories().find(GetParam());
               more != more_memories().end()) {
      backend_ = more->second();
    } else {
      machine_ = std::make_unique<testing::StandIn>();
      backend_ = machine_->backend();
      options_.storage = Storage::kShared;
      options_.shared_memory = MemoryKind::kManaged;
    }
  }

  Backend& backend() { return *backend_; }
  UnifiedOptions options() const { return options_; }

 private:
  std::unique_ptr<testing::StandIn> machine_;
  std::shared_ptr<Backend> backend_;
  UnifiedOptions options_;
};

TEST_P(UnifiedMemories, OpensHeapsByTheSizeOfTheRequest) {
  UnifiedAllocator allocator(backend(), options());
  const auto growth = [&](std::uint64_t size) {
    const std::uint64_t before = allocator.reserved_bytes();
    static_cast<void>(allocator.allocate(size).release_context());
    return allocator.reserved_bytes() - before;
  };
  EXPECT_EQ(growth(1), 8 * kMiB);
  EXPECT_EQ(growth(kMiB), 0u) << "the small heap has room";
  EXPECT_EQ(growth(kMiB + 1), 32 * kMiB);
  EXPECT_EQ(growth(9 * kMiB), 0u) << "the large heap has room";
  EXPECT_EQ(growth(40 * kMiB), kGiB);
  EXPECT_EQ(growth(600 * kMiB + 1), 0u) << "the huge heap has room";
  EXPECT_EQ(growth(700 * kMiB + 1), 702 * kMiB) << "dedicated, rounded to 2 MiB";
  allocator.check_invariants();
}

TEST_P(UnifiedMemories, RecyclesABufferWithItsIdentity) {
  UnifiedAllocator allocator(backend(), options());
  DataPtr first = allocator.allocate(40 * kMiB);
  const void* address = first.get();
  const std::uint64_t id = allocator.describe(address).id;
  first.clear();
  const DataPtr again = allocator.allocate(30 * kMiB);
  EXPECT_EQ(again.get(), address);
  EXPECT_EQ(allocator.describe(again.get()).id, id);
  EXPECT_EQ(allocator.describe(again.get()).requested_bytes, 30 * kMiB);
  EXPECT_EQ(allocator.describe(again.get()).size_bytes, 40 * kMiB);
}

TEST_P(UnifiedMemories, AcceptsAFreeBufferUpTo32MiBLargerAndCutsLargerOnes) {
  UnifiedAllocator allocator(backend(), options());
  DataPtr big = allocator.allocate(600 * kMiB);
  const std::uint64_t id = allocator.describe(big.get()).id;
  big.clear();
  const DataPtr near = allocator.allocate(568 * kMiB);
  EXPECT_EQ(allocator.describe(near.get()).id, id);
  EXPECT_EQ(allocator.describe(near.get()).size_bytes, 600 * kMiB);

  DataPtr other = allocator.allocate(600 * kMiB);
  const void* address = other.get();
  other.clear();
  const DataPtr far = allocator.allocate(567 * kMiB);
  EXPECT_EQ(far.get(), address);
  EXPECT_EQ(allocator.describe(far.get()).size_bytes, 567 * kMiB) << "cut to size";
  EXPECT_EQ(allocator.reserved_bytes(), 1200 * kMiB) << "without a new heap";
  allocator.check_invariants();
}

TEST_P(UnifiedMemories, DoesNotSpendABufferOnARequestOfLessThanHalfUnlessTold) {
  const auto second_buffer_bytes = [&](const UnifiedOptions& options) {
    UnifiedAllocator allocator(backend(), options);
    const DataPtr full = allocator.allocate(700 * kMiB);
    allocator.allocate(30 * kMiB).clear();
    const DataPtr small = allocator.allocate(11 * kMiB);
    return allocator.describe(small.get()).size_bytes;
  };
  EXPECT_EQ(second_buffer_bytes({}), 11 * kMiB);
  UnifiedOptions as_mps = this->options();
  as_mps.max_oversize_factor = 1e6;
  EXPECT_EQ(second_buffer_bytes(as_mps), 30 * kMiB);
  as_mps.max_oversize_factor = 0.5;
  EXPECT_THROW(UnifiedAllocator(backend(), as_mps), InvalidArgument);
}

TEST_P(UnifiedMemories, MergesCachedBuffersBeforeItGrows) {
  UnifiedAllocator allocator(backend(), options());
  std::vector<DataPtr> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(allocator.allocate(kMiB));
  blocks.clear();
  const DataPtr whole = allocator.allocate(512 * kKiB);
  for (int i = 0; i < 15; ++i) blocks.push_back(allocator.allocate(512 * kKiB));
  EXPECT_EQ(allocator.reserved_bytes(), 8 * kMiB * 2) << "eight buffers of 1 MiB are reused whole";
  blocks.clear();
  allocator.check_invariants();
}

TEST_P(UnifiedMemories, ZeroBytesIsANullPointerThatKeepsItsDevice) {
  UnifiedAllocator allocator(backend(), options());
  const DataPtr nothing = allocator.allocate(0);
  EXPECT_EQ(nothing.get(), nullptr);
  EXPECT_EQ(nothing.device(), backend().device());
  EXPECT_EQ(allocator.reserved_bytes(), 0u);
  EXPECT_THROW(allocator.allocate(kMaxRequestBytes + 1), InvalidArgument);
}

TEST_P(UnifiedMemories, AlignsTo16AndLargeBuffersTo256OrAsAsked) {
  UnifiedAllocator allocator(backend(), options());
  std::vector<DataPtr> blocks;
  for (std::size_t size : {1u, 17u, 100u, 4097u}) {
    blocks.push_back(allocator.allocate(size));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back().get()) % 16, 0u);
  }
  EXPECT_EQ(allocator.describe(blocks[1].get()).size_bytes, 32u);
  EXPECT_EQ(allocator.describe(blocks[1].get()).requested_bytes, 17u);
  for (const std::uint64_t extra : {1u, 3u, 255u}) {
    blocks.push_back(allocator.allocate(kMiB + extra));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back().get()) % 256, 0u);
  }
  UnifiedOptions options = this->options();
  options.alignment = 256;
  UnifiedAllocator aligned(backend(), options);
  for (int i = 0; i < 3; ++i) {
    blocks.push_back(aligned.allocate(17));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back().get()) % 256, 0u);
  }
  options.alignment = 8;
  EXPECT_THROW(UnifiedAllocator(backend(), options), InvalidArgument);
  options.alignment = 48;
  EXPECT_THROW(UnifiedAllocator(backend(), options), InvalidArgument);
  blocks.clear();
}

TEST_P(UnifiedMemories, SharedBuffersAreTheHostsToo) {
  UnifiedAllocator allocator(backend(), options());
  ASSERT_TRUE(allocator.supports_shared_storage());
  const DataPtr first = allocator.allocate(100);
  const DataPtr block = allocator.allocate(256);
  EXPECT_EQ(allocator.describe(block.get()).storage, unified::Storage::kShared);
  const BufferInfo shared = allocator.describe(block.get());
  ASSERT_NE(shared.host, nullptr);
  EXPECT_EQ(shared.uses, 0u);
  EXPECT_EQ(shared.offset_bytes, 112u) << "behind the first buffer";
  backend().fill(first.get(), 0x11, 100, current_stream(backend().device()));
  backend().fill(block.get(), 0x5a, 256, current_stream(backend().device()));
  backend().synchronize();
  const auto* const bytes = static_cast<const unsigned char*>(shared.host);
  EXPECT_TRUE(bytes[0] == 0x5a && bytes[255] == 0x5a);

  const DataPtr own = allocator.allocate_buffer(256, current_stream(backend().device()),
                                                Storage::kPrivate);
  EXPECT_EQ(allocator.describe(own.get()).storage, unified::Storage::kPrivate);
  EXPECT_EQ(allocator.describe(own.get()).host, nullptr);
}

TEST_P(UnifiedMemories, BuffersCarryAShapeUntilTheyAreFreed) {
  UnifiedAllocator allocator(backend(), options());
  DataPtr block = allocator.allocate(24);
  EXPECT_TRUE(allocator.buffer_shape(block.get()).empty());
  const std::vector<std::int64_t> shape = {2, 3};
  allocator.set_buffer_shape(block.get(), shape);
  const auto kept = allocator.buffer_shape(block.get());
  EXPECT_EQ(std::vector<std::int64_t>(kept.begin(), kept.end()), shape);
  allocator.set_buffer_shape(block.get(), {});
  EXPECT_TRUE(allocator.buffer_shape(block.get()).empty());
  allocator.set_buffer_shape(block.get(), shape);
  const void* address = block.get();
  block.clear();
  block = allocator.allocate(24);
  ASSERT_EQ(block.get(), address);
  EXPECT_TRUE(allocator.buffer_shape(address).empty());
}

TEST_P(UnifiedMemories, EveryBufferHasAnIdOfItsOwn) {
  UnifiedAllocator allocator(backend(), options());
  const DataPtr a = allocator.allocate(24);
  const DataPtr b = allocator.allocate(24);
  EXPECT_NE(allocator.describe(a.get()).id, allocator.describe(b.get()).id);
  EXPECT_EQ(allocator.describe(a.get()).id, allocator.describe(a.get()).id);
}

TEST_P(UnifiedMemories, ScalarsCarryTheirValueAndArePooledApart) {
  UnifiedAllocator allocator(backend(), options());
  const double value = 2.5;
  DataPtr scalar = allocator.alloc_scalar_buffer_with_value(&value, sizeof value);
  double seen = 0;
  std::memcpy(&seen, allocator.describe(scalar.get()).host, sizeof seen);
  EXPECT_EQ(seen, 2.5);
  EXPECT_EQ(allocator.describe(scalar.get()).requested_bytes, 8u);
  EXPECT_EQ(allocator.reserved_bytes(), 64 * kKiB);
  const void* address = scalar.get();
  scalar.clear();
  const DataPtr buffer = allocator.allocate(8);
  EXPECT_NE(buffer.get(), address) << "a buffer does not come from the scalars";
  const float other = 1;
  const DataPtr again = allocator.alloc_scalar_buffer_with_value(&other, sizeof other);
  EXPECT_EQ(again.get(), address);
  EXPECT_THROW(allocator.alloc_scalar_buffer_with_value(&value, 9), InvalidArgument);
  EXPECT_THROW(allocator.alloc_scalar_buffer_with_value(&value, 0), InvalidArgument);
  EXPECT_THROW(allocator.alloc_scalar_buffer_with_value(nullptr, 4), InvalidArgument);
}

TEST_P(UnifiedMemories, NamesMisuseAndStaysUsable) {
  UnifiedAllocator allocator(backend(), options());
  DataPtr block = allocator.allocate(100);
  void* address = block.get();
  int foreign = 0;
  EXPECT_THROW(allocator.deallocate(&foreign), InvalidPointer);
  EXPECT_THROW(allocator.describe(&foreign), InvalidPointer);
  EXPECT_THROW(allocator.buffer_shape(static_cast<char*>(address) + 1), InvalidPointer);
  const void* both[] = {address, &foreign};
  EXPECT_THROW(allocator.record_events(both), InvalidPointer);
  EXPECT_EQ(allocator.describe(address).uses, 0u) << "nothing was recorded";

  static_cast<void>(block.release_context());
  allocator.deallocate(address);
  try {
    allocator.deallocate(address);
    FAIL() << "a double free was not noticed";
  } catch (const InvalidPointer& error) {
    EXPECT_NE(std::string(error.what()).find("freed already"), std::string::npos) << error.what();
  }
  EXPECT_THROW(allocator.describe(address), InvalidPointer);
  allocator.deallocate(nullptr);
  allocator.check_invariants();
  EXPECT_EQ(mlx(allocator).get_active_memory(), 0u);
  EXPECT_EQ(allocator.allocate(100).get(), address);
}

TEST_P(UnifiedMemories, HandsOutAndTakesBackBarePointers) {
  UnifiedAllocator allocator(backend(), options());
  void* data = allocator.raw_allocate(100);
  EXPECT_EQ(allocator.describe(data).requested_bytes, 100u);
  allocator.raw_deallocate(data);
  EXPECT_THROW(allocator.raw_deallocate(data), InvalidPointer);
  EXPECT_EQ(allocator.raw_allocate(0), nullptr);
  allocator.raw_deallocate(nullptr);
}

TEST_P(UnifiedMemories, CacheLimitGivesIdleHeapsBackAtOnceAndAtFrees) {
  UnifiedAllocator allocator(backend(), options());
  DataPtr a = allocator.allocate(600 * kMiB);
  DataPtr b = allocator.allocate(700 * kMiB);
  DataPtr c = allocator.allocate(800 * kMiB);
  a.clear();
  b.clear();
  EXPECT_EQ(allocator.set_cache_limit(700 * kMiB), Watermarks::kNoLimit);
  EXPECT_EQ(mlx(allocator).get_cache_memory(), 700 * kMiB) << "the one idle longest went";
  c.clear();
  EXPECT_EQ(mlx(allocator).get_cache_memory(), 0u) << "800 MiB alone are too much";
  EXPECT_EQ(allocator.set_cache_limit(0), 700 * kMiB);
}

TEST_P(UnifiedMemories, WiredMemoryIsNotTrimmed) {
  UnifiedAllocator allocator(backend(), options());
  EXPECT_EQ(mlx(allocator).set_wired_limit(700 * kMiB), 0u);
  EXPECT_THROW(mlx(allocator).set_wired_limit(65 * kGiB), InvalidArgument);
  allocator.set_cache_limit(0);
  DataPtr a = allocator.allocate(700 * kMiB);
  DataPtr b = allocator.allocate(600 * kMiB);
  a.clear();
  b.clear();
  EXPECT_EQ(allocator.reserved_bytes(), 1300 * kMiB) << "either heap would leave less than wired";
  EXPECT_EQ(mlx(allocator).set_wired_limit(600 * kMiB), 700 * kMiB);
  allocator.set_cache_limit(0);
  EXPECT_EQ(allocator.reserved_bytes(), 600 * kMiB);
  allocator.empty_cache();
  EXPECT_EQ(allocator.reserved_bytes(), 0u) << "who asks for everything gets everything";
}

TEST_P(UnifiedMemories, MemoryLimitCollectsIdleHeapsButDoesNotFail) {
  UnifiedAllocator allocator(backend(), options());
  const std::uint64_t total = backend().memory().total_bytes;
  const std::uint64_t usable = backend().limits().unified ? total - total / 20 : total;
  EXPECT_EQ(mlx(allocator).set_memory_limit(kGiB), usable) << "by default what the device has";
  allocator.allocate(600 * kMiB).clear();
  const DataPtr other = allocator.allocate(700 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 700 * kMiB);
  const DataPtr beyond = allocator.allocate(800 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 1500 * kMiB);
}

std::vector<std::string> memories() {
  std::vector<std::string> all = {"simulated", "host", "cuda_managed"};
  for (const auto& [name, make] : more_memories()) all.push_back(name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(, UnifiedMemories, ::testing::ValuesIn(memories()),
                         [](const auto& memory) { return memory.param; });

}  // namespace
}  // namespace tenon
