#include "tenon/memory/allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "support/refusal.h"
#include "tenon/base/error.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using testing::refusal;

int live_blocks = 0;

void counted_free(void* data) {
  --live_blocks;
  std::free(data);
}

// malloc and free, freed by the data pointer alone.
class MallocAllocator : public Allocator {
 public:
  DataPtr allocate(std::size_t size_bytes) override {
    if (size_bytes == 0) return DataPtr(Device{});
    ++live_blocks;
    void* data = std::malloc(size_bytes);
    return DataPtr(data, data, &counted_free, Device{});
  }
  DeleterFn raw_deleter() const override { return &counted_free; }
  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
    ++copies_;
    default_copy_data(dest, src, size_bytes);
  }
  int copies() const { return copies_; }

 private:
  mutable int copies_ = 0;
};

// Its deleter needs a context; it has no raw API.
class ContextAllocator : public Allocator {
 public:
  DataPtr allocate(std::size_t) override { return DataPtr(&data_, this, &drop, Device{}); }
  void copy_data(void*, const void*, std::size_t) const override {}

 protected:
  static void drop(void*) { --live_blocks; }
  int data_ = 0;
};

// Claims a raw API that its own blocks cannot honour.
class LyingAllocator : public ContextAllocator {
 public:
  DataPtr allocate(std::size_t size_bytes) override {
    ++live_blocks;
    return ContextAllocator::allocate(size_bytes);
  }
  DeleterFn raw_deleter() const override { return &drop; }
};

class AllocatorTest : public ::testing::Test {
 protected:
  void SetUp() override { live_blocks = 0; }
  void TearDown() override { EXPECT_EQ(live_blocks, 0); }
  MallocAllocator malloc_;
};

TEST_F(AllocatorTest, CloneHasTheSameBytesInABlockOfItsOwn) {
  const char text[] = "contents";
  const DataPtr copy = malloc_.clone(text, sizeof(text));
  ASSERT_TRUE(copy);
  EXPECT_NE(copy.get(), text);
  EXPECT_STREQ(static_cast<const char*>(copy.get()), text);
  EXPECT_EQ(malloc_.copies(), 1);
}

TEST_F(AllocatorTest, CloneOfNothingCopiesNothing) {
  const DataPtr copy = malloc_.clone(nullptr, 0);
  EXPECT_FALSE(copy);
  EXPECT_EQ(malloc_.copies(), 0);
}

TEST_F(AllocatorTest, CloneOfNullWithASizeIsRefused) {
  EXPECT_THAT(refusal([&] { auto p = malloc_.clone(nullptr, 8); }),
              HasSubstr("clone: 8 bytes from a null pointer"));
}

TEST_F(AllocatorTest, SimpleMeansThatTheDataPointerIsEnoughToFree) {
  int data = 0;
  int context = 0;
  const DeleterFn nothing = [](void*) {};
  EXPECT_TRUE(malloc_.is_simple_data_ptr(DataPtr(&data, &data, nothing, Device{})))
      << "context equal to data";
  DataPtr borrowed(&data, Device{});
  EXPECT_TRUE(malloc_.is_simple_data_ptr(borrowed)) << "no context at all";
  DataPtr with_context(&data, &context, nothing, Device{});
  EXPECT_FALSE(malloc_.is_simple_data_ptr(with_context));
}

TEST_F(AllocatorTest, RawMemoryIsFreedByItsPointerAlone) {
  void* raw = malloc_.raw_allocate(64);
  ASSERT_NE(raw, nullptr);
  EXPECT_EQ(live_blocks, 1);
  std::memset(raw, 1, 64);
  malloc_.raw_deallocate(raw);
}

TEST_F(AllocatorTest, RawZeroBytesIsNullAndNullMayBeFreed) {
  EXPECT_EQ(malloc_.raw_allocate(0), nullptr);
  malloc_.raw_deallocate(nullptr);
}

TEST_F(AllocatorTest, RawApiIsRefusedWithARemedyWhereThereIsNone) {
  ContextAllocator allocator;
  EXPECT_EQ(allocator.raw_deleter(), nullptr);
  EXPECT_THAT(refusal([&] { allocator.raw_allocate(8); }),
              HasSubstr("no raw API; use allocate"));
  int data = 0;
  EXPECT_THAT(refusal([&] { allocator.raw_deallocate(&data); }),
              HasSubstr("no raw API; drop the DataPtr"));
}

TEST_F(AllocatorTest, RawBlockThatItsDeleterCannotFreeIsABugAndDoesNotLeak) {
  LyingAllocator allocator;
  EXPECT_THROW(allocator.raw_allocate(8), InternalError);
  EXPECT_EQ(live_blocks, 0) << "the block went back before the throw";
}

}  // namespace
}  // namespace tenon
