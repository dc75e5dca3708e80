// Copies whose rows are dense in both tensors and lie apart.
#include <gtest/gtest.h>

#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

template <typename T>
void expect_rows_copied(std::int64_t length, DType dtype) {
  const Tensor all = to(randint(0, 100, {3, 5, 4, length + 1}), dtype);
  const Tensor from = all.narrow(3, 1, length).permute({0, 2, 1, 3});
  const Tensor room = full({3, 4, 5, length + 2}, 111, dtype);
  copy_(room.narrow(3, 1, length), from);
  const T* made = room.const_data_ptr<T>();
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 4; ++j)
      for (std::int64_t k = 0; k < 5; ++k, made += length + 2) {
        const T* row = all.const_data_ptr<T>() + ((i * 5 + k) * 4 + j) * (length + 1) + 1;
        for (std::int64_t x = 0; x < length; ++x) ASSERT_EQ(made[x + 1], row[x]) << length;
        ASSERT_TRUE(made[0] == 111 && made[length + 1] == 111) << length;
      }
}

TEST(CopyRowsTest, RowsOfEveryLengthKeepTheirBytesAndThoseBesideThem) {
  for (std::int64_t length = 1; length < 300; ++length) {
    expect_rows_copied<std::uint8_t>(length, DType::kU8);
    if (length < 80) expect_rows_copied<std::int32_t>(length, DType::kI32);
  }
}

// Two to four planes, of several images, become pixels.
TEST(CopyRowsTest, PlanesOfABatchBecomePixels) {
  for (const std::int64_t channels : {2, 3, 4, 5})
    for (const std::int64_t pixels : {1, 7, 33, 1000}) {
      const Tensor planes = randint(0, 1 << 20, {3, channels, pixels + 2}, DType::kI32);
      const Tensor made = contiguous(planes.narrow(2, 1, pixels).transpose(1, 2));
      const auto* got = made.const_data_ptr<std::int32_t>();
      const auto* all = planes.const_data_ptr<std::int32_t>();
      for (std::int64_t n = 0; n < 3; ++n)
        for (std::int64_t x = 0; x < pixels; ++x)
          for (std::int64_t c = 0; c < channels; ++c, ++got)
            ASSERT_EQ(*got, all[(n * channels + c) * (pixels + 2) + x + 1]) << channels << pixels;
    }
}

}  // namespace
}  // namespace tenon
