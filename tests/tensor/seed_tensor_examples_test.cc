// The four view examples of the specification, in C++.
#include <gtest/gtest.h>

#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/indexing.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

TEST(SeedTensorExamples, ARowSharesItsBasesStorage) {
  const Tensor a = tensor<float>({1, 2, 3, 4}, {2, 2});
  EXPECT_EQ(a.storage().data(), a.const_data_ptr());
  EXPECT_EQ(a.storage().nbytes() / a.item_size(), static_cast<std::size_t>(a.numel()));
  const Tensor row = a[0];
  EXPECT_EQ(row.const_data_ptr(), a.const_data_ptr());
  EXPECT_TRUE(row.is_alias_of(a));
  EXPECT_EQ(a.storage_offset(), 0);
  EXPECT_EQ(row.storage_offset(), 0);
  EXPECT_EQ(a.strides(), (IntList{2, 1}));
  EXPECT_EQ(row.strides(), (IntList{1}));
  EXPECT_EQ(a[1].storage_offset(), 2);
}

TEST(SeedTensorExamples, TransposingIsAView) {
  const Tensor a = randn({3, 4});
  const Tensor b = a.t();
  EXPECT_TRUE(b.is_alias_of(a));
  EXPECT_EQ(a.strides(), (IntList{4, 1}));
  EXPECT_EQ(b.strides(), (IntList{1, 4}));
  fill_(b[{0, 0}], 999);
  EXPECT_EQ((a[{0, 0}]).item<float>(), 999);
}

TEST(SeedTensorExamples, ASliceIsAnOffset) {
  const Tensor a = arange(10);
  const Tensor b = a[{Slice(3, 8)}];
  EXPECT_EQ(a.storage_offset(), 0);
  EXPECT_EQ(b.storage_offset(), 3);
  EXPECT_EQ(
      static_cast<const char*>(b.const_data_ptr()) - static_cast<const char*>(a.const_data_ptr()),
      24);
}

TEST(SeedTensorExamples, ContiguousCopiesWhatIsNot) {
  const Tensor a = randn({3, 4});
  const Tensor b = a.t();
  EXPECT_TRUE(a.is_contiguous());
  EXPECT_FALSE(b.is_contiguous());
  const Tensor c = contiguous(b);
  EXPECT_TRUE(c.is_contiguous());
  EXPECT_FALSE(c.is_alias_of(b));
}

}  // namespace
}  // namespace tenon
