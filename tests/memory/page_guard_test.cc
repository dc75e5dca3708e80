// What can be seen of the page guard without ending the program; guard_programs/ has the rest.
#include "tenon/memory/adaptors/page_guard_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/error.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

char* bytes(const DataPtr& data) { return static_cast<char*>(data.get()); }

TEST(PageGuardAllocator, ServesAlignedBlocksOfAnySize) {
  PageGuardAllocator guard({.alignment = 64});
  for (const std::size_t size : {1, 63, 64, 4095, 4096, 4097, 100'000}) {
    const DataPtr block = guard.allocate(size);
    EXPECT_TRUE(is_aligned(reinterpret_cast<std::uintptr_t>(block.get()), 64));
    std::memset(block.get(), 1, size);
    const DataPtr copy = guard.clone(block.get(), size);
    EXPECT_EQ(std::memcmp(copy.get(), block.get(), size), 0);
  }
  EXPECT_EQ(guard.allocate(0).get(), nullptr);
  EXPECT_THROW(guard.allocate(kMaxRequestBytes + 1), InvalidArgument);
  EXPECT_THROW(PageGuardAllocator({.alignment = 24}), InvalidArgument);
}

TEST(PageGuardAllocator, ExplainsAddresses) {
  PageGuardAllocator guard;
  DataPtr block = guard.allocate(4096);
  const char* const data = bytes(block);
  EXPECT_THAT(guard.explain(data + 4096), HasSubstr("past the end of a block of 4096 bytes"));
  EXPECT_THAT(guard.explain(data + 4096 + 17), HasSubstr("byte 4113\n"));
  block.clear();
  EXPECT_THAT(guard.explain(data + 5), HasSubstr("after free into a block of 4096 bytes"));
  EXPECT_THAT(guard.explain(data + 5), HasSubstr("freed"));
  EXPECT_THAT(guard.explain(&guard), IsEmpty());
}

TEST(PageGuardAllocator, ForgetsFreedBlocksWhenTheQuarantineIsFull) {
  PageGuardAllocator guard({.quarantine_bytes = 100'000});
  DataPtr block = guard.allocate(9000);
  const char* const data = bytes(block);
  block.clear();
  EXPECT_THAT(guard.explain(data), HasSubstr("a block of 9000 bytes"));
  for (int i = 0; i < 50; ++i) guard.allocate(100).clear();
  // Others may be there by now.
  EXPECT_THAT(guard.explain(data), Not(HasSubstr("a block of 9000 bytes")));
}

TEST(PageGuardAllocator, ThreadsMayShareIt) {
  PageGuardAllocator guard;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      std::vector<DataPtr> blocks;
      for (std::size_t i = 1; i < 200; ++i) {
        blocks.push_back(guard.allocate(i));
        std::memset(blocks.back().get(), 1, i);
        if (i % 3 == 0) blocks.erase(blocks.begin());
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tenon
