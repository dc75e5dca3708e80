#include "tenon/tensor/sizes_and_strides.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace tenon {
namespace {

std::vector<std::int64_t> list(IntList values) { return {values.begin(), values.end()}; }

SizesAndStrides of(std::size_t ndim) {
  SizesAndStrides shape(ndim);
  for (std::size_t d = 0; d < ndim; ++d) {
    shape.size_at(d) = static_cast<std::int64_t>(10 + d);
    shape.stride_at(d) = static_cast<std::int64_t>(100 + d);
  }
  return shape;
}

void expect_shape(const SizesAndStrides& shape, std::size_t ndim) {
  ASSERT_EQ(shape.ndim(), ndim);
  for (std::size_t d = 0; d < ndim; ++d) {
    EXPECT_EQ(shape.size_at(d), static_cast<std::int64_t>(10 + d));
    EXPECT_EQ(shape.stride_at(d), static_cast<std::int64_t>(100 + d));
  }
}

TEST(SizesAndStridesTest, FiveDimensionsNeedNoHeap) {
  EXPECT_EQ(of(5).heap_bytes(), 0u);
  EXPECT_TRUE(of(5).is_inline());
  EXPECT_EQ(of(6).heap_bytes(), 6 * 2 * sizeof(std::int64_t));
  EXPECT_EQ(list(of(6).strides()), (std::vector<std::int64_t>{100, 101, 102, 103, 104, 105}));
}

// Each way between inside and outside.
TEST(SizesAndStridesTest, CopiesAndMovesKeepEveryDimension) {
  for (const std::size_t from : {0, 3, 5, 6, 9})
    for (const std::size_t over : {0, 5, 6, 9}) {
      const SizesAndStrides source = of(from);
      SizesAndStrides copied = of(over);
      copied = source;
      expect_shape(copied, from);
      EXPECT_TRUE(copied == source);
      copied.resize(from);
      expect_shape(source, from);
      SizesAndStrides moved = of(over);
      moved = std::move(copied);
      expect_shape(moved, from);
      const SizesAndStrides again(std::move(moved));
      expect_shape(again, from);
    }
}

TEST(SizesAndStridesTest, ResizingKeepsWhatStaysAndZeroesTheRest) {
  for (const std::size_t from : {2, 5, 6, 8})
    for (const std::size_t to : {0, 1, 5, 6, 8, 12}) {
      SizesAndStrides shape = of(from);
      shape.resize(to);
      ASSERT_EQ(shape.ndim(), to);
      for (std::size_t d = 0; d < to; ++d) {
        const bool stays = d < from;
        EXPECT_EQ(shape.size_at(d), stays ? static_cast<std::int64_t>(10 + d) : 0);
        EXPECT_EQ(shape.stride_at(d), stays ? static_cast<std::int64_t>(100 + d) : 0);
      }
    }
}

TEST(SizesAndStridesTest, ListsAreSetTogetherOrApart) {
  SizesAndStrides shape(2);
  shape.set({2, 3, 4, 5, 6, 7}, {6, 5, 4, 3, 2, 1});
  EXPECT_EQ(shape.ndim(), 6u);
  shape.set_sizes({8, 9});
  shape.set_strides({9, 1});
  EXPECT_EQ(list(shape.sizes()), (std::vector<std::int64_t>{8, 9}));
  EXPECT_EQ(list(shape.strides()), (std::vector<std::int64_t>{9, 1}));
  EXPECT_TRUE(shape.is_inline());
}

}  // namespace
}  // namespace tenon
